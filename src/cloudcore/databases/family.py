"""The family of database clusters and their backups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from cloudcore.databases.backups.backup import BACKUP, BACKUP_EVENTS
from cloudcore.databases.clusters.cluster import (
    BACKUP_STORAGE,
    CLUSTER,
    CPU_HOURS,
    DISK,
    MEMORY,
    MEMORY_HOURS,
    SERVICE,
)
from cloudcore.family import CommandGroup, Family

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

    from cloudcore.databases.needs import DatabaseNeeds
    from cloudcore.jobs.kinds import JobKind
    from cloudcore.jobs.schedule import Scheduled
    from cloudcore.metering.sampling import Measure
    from cloudcore.nodes.node import Watch
    from cloudcore.nodes.rows import Placing
    from cloudcore.ports import Opening
    from cloudcore.quotas.limits import Counted


async def _open(opening: Opening) -> DatabaseNeeds:
    from cloudcore.databases import needs  # noqa: PLC0415 - SQLAlchemy

    return await needs.open_needs(opening)


def _routes() -> Sequence[HTTPRouteHandler]:
    from cloudcore.databases.backups.routes import BACKUP_HANDLERS  # noqa: PLC0415 - the web framework
    from cloudcore.databases.clusters.routes import CLUSTER_HANDLERS  # noqa: PLC0415

    return (*CLUSTER_HANDLERS, *BACKUP_HANDLERS)


def _job_kinds(needs: DatabaseNeeds) -> Sequence[JobKind]:
    from cloudcore.databases.backups.workflow import BACKUP_WORK  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.databases.clusters.workflow import WORK  # noqa: PLC0415 - SQLAlchemy

    node = needs.node.name
    return (WORK.job_kind(needs, node), BACKUP_WORK.job_kind(needs, node))


def _schedule(needs: DatabaseNeeds) -> Sequence[Scheduled]:
    from functools import partial  # noqa: PLC0415

    from cloudcore.databases.backups import schedules  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.jobs.schedule import Scheduled  # noqa: PLC0415

    every = schedules.EVERY_SECONDS
    return (
        Scheduled("database.checks", every, partial(schedules.wake_due, needs)),
        Scheduled("database.backups", every, partial(schedules.take_turns, needs)),
    )


def _on_node(needs: DatabaseNeeds) -> Sequence[Watch]:
    if needs.servers is None:
        return ()
    from cloudcore.databases.archive.wal_watch import wal_watch  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.databases.servers.watch import server_watch  # noqa: PLC0415 - SQLAlchemy

    return (server_watch(needs, needs.servers), wal_watch(needs, needs.servers))


def _placings() -> Sequence[Placing]:
    from cloudcore.databases.backups.workflow import PLACING as BACKUPS  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.databases.clusters.workflow import PLACING  # noqa: PLC0415 - SQLAlchemy

    return (PLACING, BACKUPS)


def _samples() -> Mapping[str, Measure]:
    from cloudcore.databases.backups import rows as backup_rows  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.databases.clusters import rows  # noqa: PLC0415 - SQLAlchemy

    return {
        MEMORY_HOURS.name: rows.memory_by_account,
        CPU_HOURS.name: rows.cpu_by_account,
        BACKUP_STORAGE.name: lambda database: database.read(backup_rows.stored_bytes),
    }


def _uses() -> Sequence[Counted]:
    from cloudcore.databases.backups.rows import BACKUPS  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.databases.clusters.rows import CLUSTERS, DISK_WANTED, MEMORY_WANTED  # noqa: PLC0415 - SQLAlchemy

    return (CLUSTERS.counted, BACKUPS.counted, MEMORY_WANTED, DISK_WANTED)


DATABASES: Final[Family[DatabaseNeeds]] = Family(
    name=SERVICE,
    title="Database clusters",
    open=_open,
    routes=_routes,
    job_kinds=_job_kinds,
    schedule=_schedule,
    on_node=_on_node,
    placings=_placings,
    resources=(CLUSTER,),
    other_events=tuple(BACKUP_EVENTS),
    event_words=BACKUP_EVENTS,
    skus=(MEMORY_HOURS, CPU_HOURS, BACKUP_STORAGE),
    samples=_samples,
    quotas=(MEMORY, DISK, BACKUP.room),
    uses=_uses,
    commands=(CommandGroup("use the platform's services", ("cloudcore.databases.commands",)),),
)

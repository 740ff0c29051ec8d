"""The databases family at run time: its routes, job kinds, schedules and watches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cloudcore.databases.archive import wal_watch
from cloudcore.databases.backups import routes as backup_routes
from cloudcore.databases.backups import rows as backup_rows
from cloudcore.databases.backups import schedules
from cloudcore.databases.backups.workflow import BACKUP_WORK
from cloudcore.databases.backups.workflow import PLACING as BACKUPS
from cloudcore.databases.clusters import routes as cluster_routes
from cloudcore.databases.clusters import rows
from cloudcore.databases.clusters.cluster import BACKUP_STORAGE, CPU_HOURS, MEMORY_HOURS
from cloudcore.databases.clusters.clusters import METHODS
from cloudcore.databases.clusters.workflow import PLACING, WORK
from cloudcore.databases.needs import DatabaseNeeds, open_needs
from cloudcore.databases.servers import watch
from cloudcore.family import Runtime
from cloudcore.jobs.schedule import scheduled
from cloudcore.nodes.node import Watch
from cloudcore.resources.routes import handlers_of


def _on_node(needs: DatabaseNeeds) -> Sequence[Watch]:
    if (servers := needs.servers) is None:
        return ()
    seen, pushed = watch.ServerWatch(needs, servers), wal_watch.WalWatch(needs, servers)
    return (
        Watch("the database servers", watch.EVERY_SECONDS, seen.turn),
        Watch("the WAL of database clusters", wal_watch.EVERY_SECONDS, pushed.turn),
    )


RUNTIME: Final[Runtime[DatabaseNeeds]] = Runtime(
    open=open_needs,
    routes=handlers_of(METHODS, cluster_routes, backup_routes),
    job_kinds=lambda needs: (
        WORK.job_kind(needs, needs.node.name),
        BACKUP_WORK.job_kind(needs, needs.node.name),
    ),
    schedule=scheduled(
        ("database.checks", schedules.EVERY_SECONDS, schedules.wake_due_checks),
        ("database.backups", schedules.EVERY_SECONDS, schedules.request_due_backups),
    ),
    on_node=_on_node,
    placings=(PLACING, BACKUPS),
    samples={
        MEMORY_HOURS.name: rows.memory_by_account,
        CPU_HOURS.name: rows.cpu_by_account,
        BACKUP_STORAGE.name: lambda database: database.read(backup_rows.stored_bytes),
    },
    uses=(rows.CLUSTERS.counted, backup_rows.BACKUPS.counted, rows.MEMORY_WANTED, rows.DISK_WANTED),
)

"""Request scheduled backups, verifications and checks of registered clusters when they are due."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from cloudcore.databases.archive.driver import BackupKind
from cloudcore.databases.backups import backups, rows
from cloudcore.databases.backups.cron import read_cron
from cloudcore.databases.backups.workflow import note_failed
from cloudcore.databases.clusters.cluster import Cluster, Schedule
from cloudcore.databases.clusters.rows import CLUSTERS, due_checks
from cloudcore.databases.clusters.workflow import WORK
from cloudcore.errors import Conflict, NotFound, QuotaExceeded
from cloudcore.resources.resource import DELETING

if TYPE_CHECKING:
    from cloudcore.databases.needs import DatabaseNeeds
    from cloudcore.db.base import Connection

EVERY_SECONDS: Final = 60
_PAGE: Final = 100


def put(tx: Connection, cluster: Cluster) -> None:
    """Store the first due time of a new or changed schedule."""
    due_at = _next(cluster, cluster.updated_at)
    rows.put_due(tx, cluster.account_id, cluster.id, due_at)


async def request_due_backups(needs: DatabaseNeeds) -> None:
    """Request the backups and verifications that are due; several missed times count as one."""
    now, after = needs.clock(), ""
    while found := await needs.database.read(rows.due, now, after, _PAGE):
        for account_id, cluster_id, due_at in found:
            turn = partial(_take_turn, needs, account_id, cluster_id, due_at, now)
            with suppress(NotFound):  # it has just been deleted
                await needs.database.write(turn)
        after = found[-1][1]


async def wake_due_checks(needs: DatabaseNeeds) -> None:
    """Wake the jobs of registered clusters that are due for a check."""
    now, after = needs.clock(), ""
    while found := await needs.database.read(due_checks, now, after, _PAGE):
        for place in found:
            await needs.database.write(_wake, *place, now)
        after = found[-1][1]


def _wake(tx: Connection, account_id: str, cluster_id: str, now: int) -> None:
    found = CLUSTERS.find(tx, account_id, cluster_id)
    if found is not None:
        WORK.wake(tx, found, now, hastens=False)


def _take_turn(
    needs: DatabaseNeeds, account_id: str, cluster_id: str, due_at: int, now: int, tx: Connection
) -> None:
    """Do the due work of one schedule, unless another process has already done it."""
    cluster = CLUSTERS.find(tx, account_id, cluster_id)
    if cluster is None or not rows.move_due(tx, cluster_id, due_at, _next(cluster, now)):
        return
    if cluster.status == DELETING:
        return
    schedule = cluster.schedule or Schedule()
    if _is_due(schedule.base_cron, due_at, now):
        _back_up(tx, needs, cluster, "base", now)
    if _is_due(schedule.incremental_cron, due_at, now):
        _back_up(tx, needs, cluster, "incremental", now)
    if _is_due(schedule.verify_cron, due_at, now):
        found = rows.succeeded(tx, account_id, cluster_id)
        try:
            if found:
                backups.verify(tx, found[-1], now)
        except Conflict as error:
            note_failed(tx, cluster, f"the schedule cannot prove a backup: {error.message}", now)


def _back_up(
    tx: Connection, needs: DatabaseNeeds, cluster: Cluster, kind: BackupKind, now: int
) -> None:
    """Request a scheduled backup, unless one is pending; if refused, add a fault to the cluster."""
    for each in rows.waiting(tx, cluster.account_id, cluster.id):
        if (each.status, each.trigger, each.kind) == ("pending", "schedule", kind):
            return
    try:
        backups.request(tx, cluster, kind, "schedule", needs.new_id, now)
    except (Conflict, QuotaExceeded) as error:
        note_failed(tx, cluster, f"the schedule cannot make a backup: {error.message}", now)


def _is_due(cron: str | None, due_at: int, now: int) -> bool:
    """Return True if `cron` has a due time from `due_at` to `now`, inclusive; False for None."""
    return cron is not None and read_cron(cron).after(due_at - 1) <= now


def _next(cluster: Cluster, now: int) -> int | None:
    """Return the next due time after `now`, or None if nothing is scheduled."""
    schedule = cluster.schedule or Schedule()
    crons = (schedule.base_cron, schedule.incremental_cron, schedule.verify_cron)
    return min((read_cron(each).after(now) for each in crons if each is not None), default=None)

"""Which backups another backup needs, and which are older than their owner wants to keep."""

from __future__ import annotations

from collections.abc import Sequence

from cloudcore.databases import backup_rows
from cloudcore.databases.backup import Backup
from cloudcore.databases.backup_rows import BACKUPS
from cloudcore.databases.cluster import Cluster
from cloudcore.databases.rows import restores_of
from cloudcore.db.base import Connection
from cloudcore.resources.record import DELETING


def dependents(tx: Connection, found: Backup) -> Sequence[Backup]:
    """Return the backups that cannot be restored without one, but for those being deleted.

    An incremental one has what changed since the one before it, so it needs all back to its base.
    """
    base: Backup | None = found
    if found.kind == "incremental":
        if found.base_id is None or found.completed_at is None:
            return ()
        base = BACKUPS.find(tx, found.account_id, found.base_id)
    if base is None:
        return ()
    since = found.completed_at or 0
    return [
        each
        for each in backup_rows.needing(tx, base)
        if each.status != DELETING
        and each.id != found.id
        and (each.completed_at is None or each.completed_at >= since)
    ]


def outlived(tx: Connection, cluster: Cluster) -> Sequence[Backup]:
    """Return the base backups beyond the number to keep, oldest first, and those that need them.

    A backup that a cluster is being restored from is left out.
    """
    if cluster.retention is None:
        return ()
    found = backup_rows.succeeded(tx, cluster.account_id, cluster.id)
    restoring = restores_of(tx, cluster.account_id, cluster.id)
    bases = [each for each in found if each.kind == "base"]
    gone: list[Backup] = []
    for base in bases[: -cluster.retention.base_count]:
        with_it = [*dependents(tx, base), base]
        if not any(each.id in restoring for each in with_it):
            gone += with_it
    return gone

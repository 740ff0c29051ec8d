"""Which backups stay: what others need, and what is older than the owner wants to keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cloudcore.databases import backup_rows
from cloudcore.databases.backup import Backup
from cloudcore.databases.backup_rows import BACKUPS
from cloudcore.databases.cluster import Cluster
from cloudcore.databases.rows import CLUSTERS
from cloudcore.db.base import Connection
from cloudcore.resources.record import DELETING

_MOST: Final = 10_000
"""More clusters than an account has."""


def dependents(tx: Connection, found: Backup) -> Sequence[Backup]:
    """Return the backups that cannot be restored without one, and stay.

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
    """Return the base backups that are older than those that stay, and what needs them.

    So the newest that succeeded always stays, and what a cluster is being restored from.
    """
    if cluster.retention is None:
        return ()
    found = backup_rows.succeeded(tx, cluster.account_id, cluster.id)
    bases = [each for each in found if each.kind == "base"]
    gone: list[Backup] = []
    for base in bases[: -cluster.retention.base_count]:
        with_it = [*dependents(tx, base), base]
        if not any(restored_by(tx, each) for each in with_it):
            gone += with_it
    return gone


def restored_by(tx: Connection, found: Backup) -> str | None:
    """Return the name of a cluster that is being restored from a backup, or None.

    One that its owner has stopped before its data were there goes on when it is started.
    """
    clusters = CLUSTERS.list(tx, found.account_id, found.region, ("", ""), "", _MOST)
    making = (each for each in clusters if not each.has_data and each.status != DELETING)
    sources = ((each.name, each.source) for each in making)
    return next((name for name, of in sources if of and of.backup_id == found.id), None)

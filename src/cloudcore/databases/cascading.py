"""Delete the backups of a cluster that is being deleted."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cloudcore.databases import backup_rows
from cloudcore.databases.backup_work import delete_all
from cloudcore.databases.cluster import Cluster
from cloudcore.databases.retention import restored_by

if TYPE_CHECKING:
    from cloudcore.databases.needs import DatabaseNeeds
    from cloudcore.db.base import Connection

_BATCH = 100


async def delete_backups(needs: DatabaseNeeds, cluster: Cluster) -> bool:
    """Let the backups of a cluster be deleted; return True if none is left.

    Those that another cluster is being restored from go when it has been.
    """
    return await needs.database.write(partial(_delete, cluster=cluster, now=needs.clock()))


def _delete(tx: Connection, *, cluster: Cluster, now: int) -> bool:
    of = cluster.account_id, cluster.id
    found = backup_rows.remaining(tx, *of, _BATCH)
    staying = [each for each in found if each.status != "deleting"]
    delete_all(tx, [each for each in staying if restored_by(tx, each) is None], now)
    return not found

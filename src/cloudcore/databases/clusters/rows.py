"""The table of database clusters, and its queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import sqlalchemy as sa

from cloudcore.databases.clusters.cluster import CLUSTER, DISK, MEMORY
from cloudcore.db.base import Connection
from cloudcore.db.rows import given
from cloudcore.db.schema import ByteOrdered, Id, one_of, partial_index
from cloudcore.db.statement import Statement, paged
from cloudcore.metering.sampling import measure_of
from cloudcore.nodes.rows import OnNode
from cloudcore.quotas.limits import Counted
from cloudcore.resources.rows import Rows

_HAS_PORT: Final = sa.text("port IS NOT NULL")
_IS_LOOKED_AT: Final = sa.text("check_at IS NOT NULL")
CLUSTERS: Final = Rows(
    CLUSTER,
    one_of("status", "provisioning", "active", "updating", "stopped", "unavailable", "deleting"),
    one_of("type", "managed", "registered"),
    sa.CheckConstraint("(type = 'registered') = (endpoint IS NOT NULL)", name="endpoint"),
    sa.CheckConstraint("(type = 'managed') = (port IS NOT NULL)", name="port"),
    sa.CheckConstraint("applied <= generation", name="applied"),
    sa.Index("ix_database_clusters_node_id", "node", "id"),
    # So that no two servers of a machine listen on the same port.
    partial_index("uq_database_clusters_node_port", "node", "port", where=_HAS_PORT, unique=True),
    partial_index("ix_database_clusters_check_at", "check_at", "id", where=_IS_LOOKED_AT),
    types={"node": ByteOrdered, "bucket": Id},
)
_c = CLUSTERS.table.c
_IS_RUN: Final = (_c.type == sa.text("'managed'")) & (_c.is_wanted == sa.text("true"))
CLUSTERS_ON: Final = OnNode(CLUSTERS)
_PORTS: Final = Statement(
    sa.select(_c.port).where(given(_c.node), _c.port.is_not(None)).order_by(_c.port)
)
_DUE: Final = paged(
    sa.select(_c.account_id, _c.id)
    .where(_c.check_at <= sa.bindparam("now"), _c.id > sa.bindparam("after"))
    .order_by(_c.id)
)
_RESTORING: Final = Statement(
    CLUSTERS.columns.where(
        given(_c.account_id),
        _c.has_data == sa.text("false"),
        _c.source.is_not(None),
        _c.status != sa.text("'deleting'"),
    )
)


def _of_account(of: sa.ColumnElement[int]) -> Counted:
    quota = MEMORY if of is _c.memory_mb else DISK
    return Counted(quota, sa.select(sa.func.sum(of)).where(given(_c.account_id)))


MEMORY_WANTED: Final = _of_account(_c.memory_mb)
"""The MiB of memory of the clusters of an account."""
DISK_WANTED: Final = _of_account(_c.disk_mb)
_MEMORY_BY_ACCOUNT: Final = Statement(
    sa.select(_c.account_id, sa.func.sum(_c.memory_mb)).where(_IS_RUN).group_by(_c.account_id)
)
_CPU_BY_ACCOUNT: Final = Statement(
    sa.select(_c.account_id, sa.func.sum(_c.cpu_millis)).where(_IS_RUN).group_by(_c.account_id)
)


def restores_of(tx: Connection, account_id: str, cluster_id: str) -> Mapping[str, str]:
    """Map backup ids of a cluster to names of the clusters that are being restored from them."""
    found = map(CLUSTERS.record_of, tx.rows(_RESTORING, account_id=account_id))
    sources = ((each.source, each.name) for each in found)
    return {
        of.backup_id: name
        for of, name in sources
        if of and of.backup_id and of.cluster_id == cluster_id
    }


def free_port(tx: Connection, node: str, first: int, last: int) -> int | None:
    """Return the lowest free port of a machine, or None if all are taken.

    The caller should hold a lock on the machine's row; without it, two callers may get the same
    port, and a constraint refuses the second.
    """
    taken = {row[0] for row in tx.rows(_PORTS, node=node)}
    return next((each for each in range(first, last + 1) if each not in taken), None)


def due_checks(tx: Connection, now: int, after: str, limit: int) -> Sequence[tuple[str, str]]:
    """Return (account id, cluster id) of registered clusters to check, after the id `after`."""
    return [(a, b) for a, b in tx.rows(_DUE, now=now, after=after, limit=limit)]


memory_by_account: Final = measure_of(_MEMORY_BY_ACCOUNT)
"""Maps account id to the MiB of memory of its managed clusters that are to run."""
cpu_by_account: Final = measure_of(_CPU_BY_ACCOUNT)
"""Maps account id to the thousandths of a processor of its managed clusters that are to run."""

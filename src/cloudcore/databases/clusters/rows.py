"""The table of database clusters, and its queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import CheckConstraint, ColumnElement, Index, bindparam, func, select
from sqlalchemy import text as sql

from cloudcore.databases.clusters.cluster import CLUSTER, DISK, MEMORY
from cloudcore.db.base import Connection, Database
from cloudcore.db.schema import ByteOrdered, Id, one_of, partial_index
from cloudcore.db.statement import Statement, paged
from cloudcore.nodes.rows import OnNode
from cloudcore.quotas.limits import Counted
from cloudcore.resources.rows import Rows

_HAS_PORT: Final = sql("port IS NOT NULL")
_IS_LOOKED_AT: Final = sql("check_at IS NOT NULL")
CLUSTERS: Final = Rows(
    CLUSTER,
    one_of("status", "provisioning", "active", "updating", "stopped", "unavailable", "deleting"),
    one_of("type", "managed", "registered"),
    CheckConstraint("(type = 'registered') = (endpoint IS NOT NULL)", name="endpoint"),
    CheckConstraint("(type = 'managed') = (port IS NOT NULL)", name="port"),
    CheckConstraint("applied <= generation", name="applied"),
    Index("ix_database_clusters_node_id", "node", "id"),
    # So no two servers of a machine listen on the same.
    partial_index("uq_database_clusters_node_port", "node", "port", where=_HAS_PORT, unique=True),
    partial_index("ix_database_clusters_check_at", "check_at", "id", where=_IS_LOOKED_AT),
    types={"node": ByteOrdered, "bucket": Id},
)
_c = CLUSTERS.table.c
_IS_RUN: Final = (_c.type == sql("'managed'")) & (_c.is_wanted == sql("true"))
CLUSTERS_ON: Final = OnNode(CLUSTERS)
_PORTS: Final = Statement(
    select(_c.port).where(_c.node == bindparam("node"), _c.port.is_not(None)).order_by(_c.port)
)
_DUE: Final = paged(
    select(_c.account_id, _c.id)
    .where(_c.check_at <= bindparam("now"), _c.id > bindparam("after"))
    .order_by(_c.id)
)
_RESTORING: Final = Statement(
    CLUSTERS.columns.where(
        _c.account_id == bindparam("account_id"),
        _c.has_data == sql("false"),
        _c.source.is_not(None),
        _c.status != sql("'deleting'"),
    )
)


def _of_account(of: ColumnElement[int]) -> Counted:
    quota = MEMORY if of is _c.memory_mb else DISK
    return Counted(quota, select(func.sum(of)).where(_c.account_id == bindparam("account_id")))


MEMORY_WANTED: Final = _of_account(_c.memory_mb)
"""The MiB of memory of the clusters of an account."""
DISK_WANTED: Final = _of_account(_c.disk_mb)
_MEMORY_BY_ACCOUNT: Final = Statement(
    select(_c.account_id, func.sum(_c.memory_mb)).where(_IS_RUN).group_by(_c.account_id)
)
_CPU_BY_ACCOUNT: Final = Statement(
    select(_c.account_id, func.sum(_c.cpu_millis)).where(_IS_RUN).group_by(_c.account_id)
)


def restores_of(tx: Connection, account_id: str, cluster_id: str) -> Mapping[str, str]:
    """Return the names of clusters that wait for a restore of a cluster's backup, by backup id."""
    found = map(CLUSTERS.record_of, tx.rows(_RESTORING, account_id=account_id))
    sources = ((each.source, each.name) for each in found)
    return {
        of.backup_id: name
        for of, name in sources
        if of and of.backup_id and of.cluster_id == cluster_id
    }


def ports_on(tx: Connection, node: str) -> frozenset[int]:
    """Return the ports of the clusters of a machine."""
    return frozenset(row[0] for row in tx.rows(_PORTS, node=node))


def free_port(tx: Connection, node: str, first: int, last: int) -> int | None:
    """Return the lowest free port of a machine; None if none is free.

    The caller holds the row of the machine; without that, the constraint may refuse the port.
    """
    taken = ports_on(tx, node)
    return next((each for each in range(first, last + 1) if each not in taken), None)


def due_checks(tx: Connection, now: int, after: str, limit: int) -> Sequence[tuple[str, str]]:
    """Return account and id of registered clusters that are due for a check, after an id."""
    return [(a, b) for a, b in tx.rows(_DUE, now=now, after=after, limit=limit)]


async def memory_by_account(database: Database) -> Mapping[str, int]:
    """Return the MiB of memory of the servers of each account."""
    return await database.read(_by_account, _MEMORY_BY_ACCOUNT)


async def cpu_by_account(database: Database) -> Mapping[str, int]:
    """Return the thousandths of a processor of the servers of each account."""
    return await database.read(_by_account, _CPU_BY_ACCOUNT)


def _by_account(tx: Connection, statement: Statement) -> dict[str, int]:
    return {account_id: int(found) for account_id, found in tx.rows(statement)}

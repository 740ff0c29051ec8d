"""The tables of instance pools and instances, and their queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from cloudcore.compute.instance_pool import (
    INSTANCE,
    INSTANCE_POOL,
    INSTANCES,
    KEPT_SECONDS,
    MEMORY,
    Instance,
)
from cloudcore.db.base import Connection
from cloudcore.db.rows import count, deletion, given
from cloudcore.db.schema import ByteOrdered, Id, one_of, partial_index
from cloudcore.db.statement import Statement, paged
from cloudcore.metering.sampling import measure_of
from cloudcore.nodes.rows import OnNode
from cloudcore.quotas.limits import Counted
from cloudcore.resources.rows import IS_DELETED, Rows

POOLS: Final = Rows(
    INSTANCE_POOL,
    one_of("status", "provisioning", "active", "scaling", "degraded", "deleting"),
    sa.CheckConstraint("size >= 0 AND size <= 20", name="size"),
    sa.CheckConstraint("fetched <= generation", name="fetched"),
    sa.Index("ix_instance_pools_node_id", "node", "id"),
    partial_index("ix_instance_pools_deleted_at", "deleted_at", where=IS_DELETED),
    types={"node": ByteOrdered, "role": Id, "subnet": Id, "vpc_id": Id},
    on_delete={"environment": sa.text("'{}'")},
)
INSTANCE_ROWS: Final = Rows(
    INSTANCE,
    one_of("status", "starting", "running", "unhealthy", "stopping", "stopped"),
    sa.Index("ix_instances_pool_id", "pool_id"),
    sa.Index("ix_instances_node_id", "node", "id"),
    # In place of the default index, which is by the key: here that is the id.
    unique=partial_index(
        "uq_instances_interface_id",
        "interface_id",
        where=sa.text("interface_id IS NOT NULL"),
        unique=True,
    ),
    types={"node": ByteOrdered, "interface_id": Id},
    references={"pool": POOLS},
)
_p, _i = POOLS.table.c, INSTANCE_ROWS.table.c
_IS_LIVE: Final = _p.deleted_at.is_(None)
_OF_POOL: Final = given(_i.account_id, _i.pool_id)
POOLS_ON: Final = OnNode(POOLS)
INSTANCES_ON: Final = OnNode(INSTANCE_ROWS)
_INSTANCES_OF: Final = paged(
    INSTANCE_ROWS.columns.where(_OF_POOL, _i.id > sa.bindparam("after")).order_by(_i.id)
)
_COUNT_OF: Final = Statement(sa.select(sa.func.count()).select_from(_i.id.table).where(_OF_POOL))
_DELETED: Final = Statement(
    sa.select(_p.name).where(given(_p.account_id, _p.region, _p.id), _p.deleted_at.is_not(None))
)
forget_deleted: Final = deletion(_p.deleted_at, kept_seconds=KEPT_SECONDS)
"""Deletes a batch of the rows of pools that were deleted over a day ago."""
_MEMORY_BY_ACCOUNT: Final = Statement(
    sa.select(_i.account_id, sa.func.sum(_i.memory_mb)).group_by(_i.account_id)
)
_CPU_BY_ACCOUNT: Final = Statement(
    sa.select(_i.account_id, sa.func.sum(_i.cpu_millis)).group_by(_i.account_id)
)


def _sum(of: sa.ColumnElement[int]) -> sa.Select[int]:
    return sa.select(sa.func.sum(of)).where(given(_p.account_id), _IS_LIVE)


WANTED_INSTANCES: Final = Counted(INSTANCES, _sum(_p.size))
"""The sum of the sizes of all pools of an account."""
WANTED_MEMORY: Final = Counted(MEMORY, _sum(_p.size * _p.memory_mb))


def list_instances(
    tx: Connection, account_id: str, pool_id: str, after: str, limit: int
) -> Sequence[Instance]:
    """Return a page of the instances of a pool, oldest first."""
    of = {"account_id": account_id, "pool_id": pool_id, "after": after}
    return INSTANCE_ROWS.read_all(tx, _INSTANCES_OF, **of, limit=limit)


def all_instances(tx: Connection, account_id: str, pool_id: str) -> Sequence[Instance]:
    """Return all instances of a pool, oldest first: a pool never has as many as 100."""
    return list_instances(tx, account_id, pool_id, "", 100)


def count_instances(tx: Connection, account_id: str, pool_id: str) -> int:
    """Count the instances of a pool."""
    return count(tx, _COUNT_OF, account_id=account_id, pool_id=pool_id)


def name_of_deleted(tx: Connection, account_id: str, region: str, pool_id: str) -> str | None:
    """Return the name of a recently deleted pool, or None if no deleted pool has this id."""
    row = tx.row(_DELETED, account_id=account_id, region=region, id=pool_id)
    return None if row is None else str(row[0])


memory_by_account: Final = measure_of(_MEMORY_BY_ACCOUNT)
"""Maps account id to the MiB of memory of its instances."""
cpu_by_account: Final = measure_of(_CPU_BY_ACCOUNT)
"""Maps account id to the thousandths of a processor of its instances."""

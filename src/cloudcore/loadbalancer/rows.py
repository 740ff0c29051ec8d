"""The tables of load balancers, and their queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import sqlalchemy as sa

from cloudcore.db.base import Connection
from cloudcore.db.rows import given, insert_new, insert_or_change
from cloudcore.db.schema import ByteOrdered, Id, Moment, one_of
from cloudcore.db.statement import Statement
from cloudcore.db.tables import columns, indexes, table
from cloudcore.loadbalancer.load_balancer import LOAD_BALANCER, MOST_REPLICAS, LoadBalancer
from cloudcore.nodes.rows import OnNode
from cloudcore.resources.rows import Rows

ROWS: Final = Rows(
    LOAD_BALANCER,
    one_of("status", "provisioning", "active", "updating", "degraded", "failed", "deleting"),
    sa.CheckConstraint(f"replica_count BETWEEN 1 AND {MOST_REPLICAS}", name="replica_count"),
    sa.Index("ix_load_balancers_node", "node", "id"),
    types={"interface_id": Id, "role_id": Id},
)
_b = ROWS.table.c


def _of_balancer(table_name: str) -> sa.ForeignKeyConstraint:
    """Return a foreign key that prevents deleting a load balancer before its rows in a table."""
    return sa.ForeignKeyConstraint(
        ["load_balancer_id", "account_id"],
        ["load_balancers.id", "load_balancers.account_id"],
        name=f"fk_{table_name}_load_balancer",
    )


# Which load balancer has an address. The reservation is deleted before the record (foreign key).
vip_reservations = table(
    "load_balancer_vips",
    columns(ByteOrdered, "vip KEY"),
    columns(Id, "account_id, load_balancer_id"),
    sa.UniqueConstraint("load_balancer_id"),
    _of_balancer("load_balancer_vips"),
)

# Which load balancers lead to the instances of a pool.
pool_users = table(
    "load_balancer_pools",
    columns(Id, "pool_id KEY, load_balancer_id KEY, account_id"),
    _of_balancer("load_balancer_pools"),
    indexes("load_balancer_id"),
)

# What a replica has served: in total, and the last counters that it reported itself.
replica_metrics = table(
    "load_balancer_metrics",
    columns(Id, "load_balancer_id KEY"),
    columns(sa.Integer, "replica KEY"),
    columns(Id, "account_id"),
    columns(sa.Text, "served"),  # JSON: `ProxyCounters`
    columns(sa.Text, "last"),
    columns(Moment, "updated_at"),
    _of_balancer("load_balancer_metrics"),
)

_v = vip_reservations.c
_p = pool_users.c
_m = replica_metrics.c


def _is_of(of: sa.Table) -> sa.ColumnElement[bool]:
    """Return the condition that selects the rows of a load balancer."""
    return given(of.c.load_balancer_id, of.c.account_id)


_TAKEN: Final = Statement(sa.select(_v.vip))
_RESERVE: Final = Statement(insert_new(vip_reservations, vip_reservations.c.keys()))
_RELEASE: Final = Statement(vip_reservations.delete().where(_is_of(vip_reservations)))
_CLEAR_POOLS: Final = Statement(pool_users.delete().where(_is_of(pool_users)))
_ADD_POOL: Final = Statement(insert_new(pool_users, pool_users.c.keys()))
_USING: Final = Statement(
    sa.select(_p.load_balancer_id)
    .where(given(_p.pool_id, _p.account_id))
    .order_by(_p.load_balancer_id)
)
ON_NODE: Final = OnNode(ROWS)
_COUNTED: Final = Statement(
    sa.select(_b.account_id, sa.func.count()).group_by(_b.account_id).order_by(_b.account_id)
)
_SET_VIP: Final = Statement(
    ROWS.table.update()
    .where(_b.id == sa.bindparam("of_id"), given(_b.account_id))
    .values(vip=sa.bindparam("vip"))
)


def _place(found: LoadBalancer) -> Mapping[str, str]:
    return {"account_id": found.account_id, "load_balancer_id": found.id}


def set_vip(tx: Connection, found: LoadBalancer, vip: str) -> None:
    """Store the address of a new load balancer in its row."""
    tx.execute(_SET_VIP, of_id=found.id, account_id=found.account_id, vip=vip)


def taken_vips(tx: Connection) -> frozenset[str]:
    """Return the addresses of all load balancers."""
    return frozenset(row[0] for row in tx.rows(_TAKEN))


def reserve(tx: Connection, found: LoadBalancer, vip: str) -> bool:
    """Reserve an address for a load balancer; return False if another load balancer has it."""
    return tx.execute(_RESERVE, vip=vip, **_place(found)) == 1


def release_vip(tx: Connection, found: LoadBalancer) -> None:
    """Free the address of a load balancer; do nothing if it is already free."""
    tx.execute(_RELEASE, **_place(found))


def put_pools(tx: Connection, found: LoadBalancer, pool_ids: Iterable[str]) -> None:
    """Store which pools a load balancer has as targets, in place of the previous ones."""
    tx.execute(_CLEAR_POOLS, **_place(found))
    for pool_id in sorted(pool_ids):
        tx.execute(_ADD_POOL, pool_id=pool_id, **_place(found))


def using_pool(tx: Connection, account_id: str, pool_id: str) -> Sequence[str]:
    """Return the ids of the load balancers that have a pool as a target."""
    return [row[0] for row in tx.rows(_USING, account_id=account_id, pool_id=pool_id)]


def counted(tx: Connection) -> Mapping[str, int]:
    """Map account id to its number of load balancers."""
    return {row[0]: row[1] for row in tx.rows(_COUNTED)}


_METRICS_OF: Final = Statement(
    sa.select(_m.replica, _m.served, _m.last).where(_is_of(replica_metrics)).order_by(_m.replica)
)
_PUT_METRICS: Final = Statement(insert_or_change(replica_metrics, replica_metrics.c.keys()))
_FORGET_METRICS: Final = Statement(replica_metrics.delete().where(_is_of(replica_metrics)))


def metrics_of(tx: Connection, account_id: str, balancer_id: str) -> Mapping[int, tuple[str, str]]:
    """Map each replica's number to (total, last reading), both counters in JSON."""
    found = tx.rows(_METRICS_OF, account_id=account_id, load_balancer_id=balancer_id)
    return {row[0]: (row[1], row[2]) for row in found}


def put_metrics(
    tx: Connection, found: LoadBalancer, replica: int, served: str, last: str, now: int
) -> None:
    """Store the counters of a replica: in total, and as the replica reported them last."""
    values = {"replica": replica, "served": served, "last": last, "updated_at": now}
    tx.execute(_PUT_METRICS, **values, **_place(found))


def forget_parts(tx: Connection, found: LoadBalancer) -> None:
    """Delete the metrics and the list of pools of a load balancer that has been torn down."""
    tx.execute(_FORGET_METRICS, **_place(found))
    tx.execute(_CLEAR_POOLS, **_place(found))

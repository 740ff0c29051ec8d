"""The rows of dedicated IPs. An address is in one of them at most, of whatever account."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import CheckConstraint, Index, bindparam, exists, literal_column, select

from cloudcore.db.base import Connection
from cloudcore.db.schema import one_of
from cloudcore.db.statement import Statement, listed, page, text_list
from cloudcore.email.dedicated_ip import DEDICATED_IP, DedicatedIP
from cloudcore.email.ip_pool_rows import ROWS as IP_POOLS
from cloudcore.email.message_rows import IS_WAITING, recipients
from cloudcore.resources.rows import Rows

ROWS: Final = Rows(
    DEDICATED_IP,
    one_of("warmup_status", "new", "warming", "warmed", "paused"),
    CheckConstraint("sent >= 0", name="sent"),
    Index("ix_dedicated_ips_ip_pool_id", "ip_pool_id"),
    unique=Index("uq_dedicated_ips_address", "address", unique=True),
    references={"ip_pool": IP_POOLS},
)
_d = ROWS.table.c
_LOCK_POOL: Final = Statement(
    page(
        ROWS.columns.where(
            _d.account_id == bindparam("account_id"),
            _d.region == bindparam("region"),
            _d.ip_pool_id == bindparam("ip_pool_id"),
            _d.warmup_status != literal_column("'paused'"),
        ).order_by(_d.id)
    ).with_for_update(of=ROWS.table)
)
_LOCK_ADDRESS: Final = Statement(
    ROWS.columns.where(
        _d.account_id == bindparam("account_id"),
        _d.region == bindparam("region"),
        _d.address == bindparam("address"),
    ).with_for_update(of=ROWS.table)
)
_TAKEN: Final = Statement(select(_d.address).where(_d.address.in_(listed("addresses"))))
_OTHERS: Final = Statement(
    page(select(_d.address).where(_d.address.not_in(listed("addresses"))).order_by(_d.address))
)
_HAS_WAITING: Final = Statement(
    select(
        exists().where(
            recipients.c.account_id == bindparam("account_id"),
            recipients.c.source_ip == bindparam("address"),
            IS_WAITING,
        )
    )
)


def lock_pool(
    tx: Connection, account_id: str, region: str, ip_pool_id: str
) -> Sequence[DedicatedIP]:
    """Return the addresses of a pool that may send; until `tx` ends nobody else counts on them."""
    where = {"account_id": account_id, "region": region, "ip_pool_id": ip_pool_id}
    return [ROWS.record_of(row) for row in tx.rows(_LOCK_POOL, **where, limit=DEDICATED_IP.quota)]


def lock_address(tx: Connection, account_id: str, region: str, address: str) -> DedicatedIP | None:
    """Return an address of an account, and block changes of it; None if it has it no more."""
    row = tx.row(_LOCK_ADDRESS, account_id=account_id, region=region, address=address)
    return None if row is None else ROWS.record_of(row)


def taken(tx: Connection, addresses: Sequence[str]) -> frozenset[str]:
    """Return which of these addresses some account has."""
    return frozenset(row[0] for row in tx.rows(_TAKEN, addresses=text_list(addresses)))


def others(tx: Connection, addresses: Sequence[str], limit: int) -> Sequence[str]:
    """Return addresses that some account has and that are none of these."""
    rows = tx.rows(_OTHERS, addresses=text_list(addresses), limit=limit)
    return [row[0] for row in rows]


def has_waiting(tx: Connection, account_id: str, address: str) -> bool:
    """Return True if something waits to be sent from an address."""
    row = tx.row(_HAS_WAITING, account_id=account_id, address=address)
    return row is not None and bool(row[0])

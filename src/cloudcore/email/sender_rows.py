"""The tables and queries of sending identities, IP pools and dedicated IPs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from cloudcore.db.base import Connection
from cloudcore.db.rows import given
from cloudcore.db.schema import one_of, partial_index
from cloudcore.db.statement import Statement, listed, page, paged, text_list
from cloudcore.email.dedicated_ip import DEDICATED_IP, DedicatedIP
from cloudcore.email.messages.rows import IS_WAITING, recipients
from cloudcore.email.resources import IP_POOL, SENDING_IDENTITY, SendingIdentity
from cloudcore.resources.rows import Rows

IP_POOL_ROWS: Final = Rows(IP_POOL)


DEDICATED_IP_ROWS: Final = Rows(
    DEDICATED_IP,
    one_of("warmup_status", "new", "warming", "warmed", "paused"),
    sa.CheckConstraint("sent >= 0", name="sent"),
    sa.Index("ix_dedicated_ips_ip_pool_id", "ip_pool_id"),
    unique=sa.Index("uq_dedicated_ips_address", "address", unique=True),
    references={"ip_pool": IP_POOL_ROWS},
)
_d = DEDICATED_IP_ROWS.table.c
_LOCK_POOL: Final = Statement(
    page(
        DEDICATED_IP_ROWS.columns.where(
            given(_d.account_id, _d.region, _d.ip_pool_id),
            _d.warmup_status != sa.literal_column("'paused'"),
        ).order_by(_d.id)
    ).with_for_update(of=DEDICATED_IP_ROWS.table)
)
_LOCK_ADDRESS: Final = Statement(
    DEDICATED_IP_ROWS.columns.where(given(_d.account_id, _d.region, _d.address)).with_for_update(
        of=DEDICATED_IP_ROWS.table
    )
)
_TAKEN: Final = Statement(sa.select(_d.address).where(_d.address.in_(listed("addresses"))))
_OTHERS: Final = paged(
    sa.select(_d.address).where(_d.address.not_in(listed("addresses"))).order_by(_d.address)
)
_HAS_WAITING: Final = Statement(
    sa.select(
        sa.exists().where(
            given(recipients.c.account_id),
            recipients.c.source_ip == sa.bindparam("address"),
            IS_WAITING,
        )
    )
)


def lock_pool(
    tx: Connection, account_id: str, region: str, ip_pool_id: str
) -> Sequence[DedicatedIP]:
    """Return the dedicated IPs of a pool that are not paused, locked until `tx` ends."""
    where = {"account_id": account_id, "region": region, "ip_pool_id": ip_pool_id}
    return DEDICATED_IP_ROWS.read_all(tx, _LOCK_POOL, **where, limit=DEDICATED_IP.quota)


def lock_address(tx: Connection, account_id: str, region: str, address: str) -> DedicatedIP | None:
    """Return a dedicated IP, locked until `tx` ends; None if the account no longer has it."""
    where = {"account_id": account_id, "region": region}
    return DEDICATED_IP_ROWS.read_one(tx, _LOCK_ADDRESS, **where, address=address)


def taken(tx: Connection, addresses: Sequence[str]) -> frozenset[str]:
    """Return the addresses among `addresses` that some account already has."""
    return frozenset(row[0] for row in tx.rows(_TAKEN, addresses=text_list(addresses)))


def others(tx: Connection, addresses: Sequence[str], limit: int) -> Sequence[str]:
    """Return up to `limit` dedicated IPs of any account that are not among `addresses`."""
    rows = tx.rows(_OTHERS, addresses=text_list(addresses), limit=limit)
    return [row[0] for row in rows]


def has_waiting(tx: Connection, account_id: str, address: str) -> bool:
    """Return True if unsent mail of an account is to be sent from an address."""
    row = tx.row(_HAS_WAITING, account_id=account_id, address=address)
    return row is not None and bool(row[0])


_HAS_WORK: Final = sa.text("check_at IS NOT NULL")
_IS_ASKED: Final = sa.text("confirmation_hash IS NOT NULL")

IDENTITY_ROWS: Final = Rows(
    SENDING_IDENTITY,
    one_of("kind", "domain", "address"),
    one_of("status", "pending", "verified", "failed"),
    sa.CheckConstraint(
        "(kind = 'domain') = (dkim_key IS NOT NULL)"
        " AND (dkim_key IS NULL) = (dkim_public IS NULL)"
        " AND (dkim_key IS NULL) = (dkim_selector IS NULL)",
        name="dkim_key",
    ),
    sa.CheckConstraint("kind = 'address' OR confirmation_hash IS NULL", name="confirmation_hash"),
    sa.CheckConstraint("status <> 'verified' OR verified_at IS NOT NULL", name="verified_at"),
    partial_index("ix_email_identities_check_at", "check_at", where=_HAS_WORK),
    sa.Index("ix_email_identities_ip_pool_id", "ip_pool_id"),
    partial_index(
        "uq_email_identities_confirmation_hash", "confirmation_hash", where=_IS_ASKED, unique=True
    ),
    references={"ip_pool": IP_POOL_ROWS},
)
_i = IDENTITY_ROWS.table.c
_LIST_DUE: Final = paged(
    sa.select(_i.account_id, _i.id, _i.check_at)
    .where(_i.check_at <= sa.bindparam("now"), _i.check_at > sa.bindparam("after"))
    .order_by(_i.check_at)
)
_LOCK_CONFIRMED_BY: Final = Statement(
    IDENTITY_ROWS.columns.where(_i.confirmation_hash == sa.bindparam("hash")).with_for_update(
        of=IDENTITY_ROWS.table
    )
)


def list_due(tx: Connection, now: int, after: int, limit: int) -> list[tuple[str, str, int]]:
    """Return (account id, id, due time) of up to `limit` identities, earliest first.

    They are due later than `after`, and no later than `now`.
    """
    return [(*row,) for row in tx.rows(_LIST_DUE, now=now, after=after, limit=limit)]


def lock_confirmed_by(tx: Connection, token_hash: bytes) -> SendingIdentity | None:
    """Return the identity whose confirmation token has this hash, or None.

    The identity is locked until `tx` ends.
    """
    return IDENTITY_ROWS.read_one(tx, _LOCK_CONFIRMED_BY, hash=token_hash)

"""The rows of sending identities."""

from __future__ import annotations

from typing import Final

from sqlalchemy import CheckConstraint, Index, bindparam, select
from sqlalchemy import text as sql

from cloudcore.db.base import Connection
from cloudcore.db.schema import one_of, partial_index
from cloudcore.db.statement import Statement, page
from cloudcore.email.ip_pool_rows import ROWS as IP_POOLS
from cloudcore.email.sending_identity import SENDING_IDENTITY, SendingIdentity
from cloudcore.resources.rows import Rows

_HAS_WORK: Final = sql("check_at IS NOT NULL")
_IS_ASKED: Final = sql("confirmation_hash IS NOT NULL")

ROWS: Final = Rows(
    SENDING_IDENTITY,
    one_of("kind", "domain", "address"),
    one_of("status", "pending", "verified", "failed"),
    CheckConstraint(
        "(kind = 'domain') = (dkim_key IS NOT NULL)"
        " AND (dkim_key IS NULL) = (dkim_public IS NULL)"
        " AND (dkim_key IS NULL) = (dkim_selector IS NULL)",
        name="dkim_key",
    ),
    CheckConstraint("kind = 'address' OR confirmation_hash IS NULL", name="confirmation_hash"),
    CheckConstraint("status <> 'verified' OR verified_at IS NOT NULL", name="verified_at"),
    partial_index("ix_email_identities_check_at", "check_at", where=_HAS_WORK),
    Index("ix_email_identities_ip_pool_id", "ip_pool_id"),
    partial_index(
        "uq_email_identities_confirmation_hash", "confirmation_hash", where=_IS_ASKED, unique=True
    ),
    references={"ip_pool": IP_POOLS},
)
_i = ROWS.table.c
_LIST_DUE: Final = Statement(
    page(
        select(_i.account_id, _i.id, _i.check_at)
        .where(_i.check_at <= bindparam("now"), _i.check_at > bindparam("after"))
        .order_by(_i.check_at)
    )
)
_LOCK_CONFIRMED_BY: Final = Statement(
    ROWS.columns.where(_i.confirmation_hash == bindparam("hash")).with_for_update(of=ROWS.table)
)


def list_due(tx: Connection, now: int, after: int, limit: int) -> list[tuple[str, str, int]]:
    """Return account, id and time of identities with work that is due, earliest first."""
    return [(*row,) for row in tx.rows(_LIST_DUE, now=now, after=after, limit=limit)]


def lock_confirmed_by(tx: Connection, token_hash: bytes) -> SendingIdentity | None:
    """Return the identity that a token confirms, and block changes of it; None if there is none."""
    row = tx.row(_LOCK_CONFIRMED_BY, hash=token_hash)
    return None if row is None else ROWS.record_of(row)

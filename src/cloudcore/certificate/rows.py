"""Rows of certificates, and the queries of their chores."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    CheckConstraint,
    Index,
    Integer,
    String,
    UniqueConstraint,
    bindparam,
    select,
)
from sqlalchemy import text as sql

from cloudcore.certificate.certificate import CERTIFICATE
from cloudcore.certificate.rules import CertificateMissing
from cloudcore.db.base import Connection
from cloudcore.db.schema import Id
from cloudcore.db.statement import Statement, page
from cloudcore.resources.rows import Rows, one_of

_IS_RENEWED: Final = sql("renew_at IS NOT NULL")
_IS_ACTIVE: Final = sql("status = 'active'")

ROWS: Final = Rows(
    CERTIFICATE,
    one_of("status", "pending_validation", "issuing", "active", "expired", "revoked", "failed"),
    one_of("source", "acme", "uploaded"),
    CheckConstraint("(source = 'uploaded') = (issuer = '')", name="issuer"),
    CheckConstraint(
        "(certificate_pem IS NULL) = (status IN ('pending_validation', 'issuing', 'failed'))",
        name="certificate_pem",
    ),
    CheckConstraint(
        "(private_key IS NOT NULL) = (certificate_pem IS NOT NULL AND csr IS NULL)",
        name="private_key",
    ),
    CheckConstraint("csr IS NULL OR source = 'acme'", name="csr"),
    CheckConstraint(
        "private_key_exported_at IS NULL OR (private_key IS NOT NULL AND source = 'acme')",
        name="private_key_exported_at",
    ),
    CheckConstraint("(certificate_pem IS NULL) = (expires_at IS NULL)", name="expires_at"),
    CheckConstraint(
        "renew_at IS NULL OR (source = 'acme' AND status IN ('active', 'expired'))",
        name="renew_at",
    ),
    Index(
        "ix_certificates_renew_at",
        "renew_at",
        sqlite_where=_IS_RENEWED,
        postgresql_where=_IS_RENEWED,
    ),
    Index(
        "ix_certificates_expires_at",
        "expires_at",
        sqlite_where=_IS_ACTIVE,
        postgresql_where=_IS_ACTIVE,
    ),
    unique=UniqueConstraint("account_id", "region", "name"),
    types={
        "status": String(20),
        "source": String(8),
        "issuer": String(16),
        "key_algorithm": String(10),
        "fingerprint": String(64),
        "kms_key_id": Id,
        "warned_days": Integer(),
    },
    missing=CertificateMissing,
)
_c = ROWS.table.c
_LIST_RENEWED: Final = Statement(
    page(
        select(_c.account_id, _c.id, _c.renew_at)
        .where(_c.renew_at <= bindparam("now"), _c.renew_at > bindparam("after"))
        .order_by(_c.renew_at)
    )
)
_LIST_OVER: Final = Statement(
    page(
        select(_c.account_id, _c.id)
        .where(_IS_ACTIVE, _c.expires_at <= bindparam("now"))
        .order_by(_c.expires_at)
    )
)
_LIST_ENDING: Final = Statement(
    page(
        select(_c.account_id, _c.id)
        .where(
            _IS_ACTIVE,
            _c.source == sql("'uploaded'"),
            _c.expires_at <= bindparam("until"),
            _c.expires_at > bindparam("now"),
            _c.warned_days.is_(None) | (_c.warned_days > bindparam("days")),
        )
        .order_by(_c.expires_at)
    )
)


def list_due_renewals(
    tx: Connection, now: int, after: int, limit: int
) -> list[tuple[str, str, int]]:
    """Return account, id and time of certificates that are to be renewed, earliest first."""
    return [(*row,) for row in tx.rows(_LIST_RENEWED, now=now, after=after, limit=limit)]


def list_over(tx: Connection, now: int, limit: int) -> list[tuple[str, str]]:
    """Return account and id of active certificates whose time is over."""
    return [(row[0], row[1]) for row in tx.rows(_LIST_OVER, now=now, limit=limit)]


def list_ending(
    tx: Connection, now: int, days: int, until: int, limit: int
) -> list[tuple[str, str]]:
    """Return account and id of active uploads that end by `until`, and were not told so.

    What counts was told when no more than `days` were left.
    """
    rows = tx.rows(_LIST_ENDING, now=now, days=days, until=until, limit=limit)
    return [(row[0], row[1]) for row in rows]

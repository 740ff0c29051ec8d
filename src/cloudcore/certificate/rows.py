"""The tables of certificates, and their queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import sqlalchemy as sa

from cloudcore.certificate.certificate import CERTIFICATE, CertificateMissing
from cloudcore.db.base import Connection
from cloudcore.db.rows import given, insert_new
from cloudcore.db.schema import ByteOrdered, Id, Moment, one_of, partial_index
from cloudcore.db.statement import Statement, paged
from cloudcore.db.tables import columns, indexes, named_index, refers, table
from cloudcore.resources.rows import Rows

_IS_RENEWED: Final = sa.text("renew_at IS NOT NULL")
_IS_ACTIVE: Final = sa.text("status = 'active'")

ROWS: Final = Rows(
    CERTIFICATE,
    one_of("status", "pending_validation", "issuing", "active", "expired", "revoked", "failed"),
    one_of("source", "acme", "uploaded"),
    sa.CheckConstraint("(source = 'uploaded') = (issuer = '')", name="issuer"),
    sa.CheckConstraint(
        "(certificate_pem IS NULL) = (status IN ('pending_validation', 'issuing', 'failed'))",
        name="certificate_pem",
    ),
    sa.CheckConstraint(
        "(private_key IS NOT NULL) = (certificate_pem IS NOT NULL AND csr IS NULL)",
        name="private_key",
    ),
    sa.CheckConstraint("csr IS NULL OR source = 'acme'", name="csr"),
    sa.CheckConstraint(
        "private_key_exported_at IS NULL OR (private_key IS NOT NULL AND source = 'acme')",
        name="private_key_exported_at",
    ),
    sa.CheckConstraint("(certificate_pem IS NULL) = (expires_at IS NULL)", name="expires_at"),
    sa.CheckConstraint(
        "renew_at IS NULL OR (source = 'acme' AND status IN ('active', 'expired'))",
        name="renew_at",
    ),
    partial_index("ix_certificates_renew_at", "renew_at", where=_IS_RENEWED),
    partial_index("ix_certificates_expires_at", "expires_at", where=_IS_ACTIVE),
    unique=sa.UniqueConstraint("account_id", "region", "name"),
    types={
        "status": sa.String(20),
        "source": sa.String(8),
        "issuer": sa.String(16),
        "key_algorithm": sa.String(10),
        "fingerprint": sa.String(64),
        "kms_key_id": Id,
        "warned_days": sa.Integer(),
    },
    missing=CertificateMissing,
)
_c = ROWS.table.c
_LIST_RENEWED: Final = paged(
    sa.select(_c.account_id, _c.id, _c.renew_at)
    .where(_c.renew_at <= sa.bindparam("now"), _c.renew_at > sa.bindparam("after"))
    .order_by(_c.renew_at)
)
_LIST_OVER: Final = paged(
    sa.select(_c.account_id, _c.id)
    .where(_IS_ACTIVE, _c.expires_at <= sa.bindparam("now"))
    .order_by(_c.expires_at)
)
_LIST_ENDING: Final = paged(
    sa.select(_c.account_id, _c.id)
    .where(
        _IS_ACTIVE,
        _c.source == sa.text("'uploaded'"),
        _c.expires_at <= sa.bindparam("until"),
        _c.expires_at > sa.bindparam("now"),
        _c.warned_days.is_(None) | (_c.warned_days > sa.bindparam("days")),
    )
    .order_by(_c.expires_at)
)


def list_due_renewals(
    tx: Connection, now: int, after: int, limit: int
) -> list[tuple[str, str, int]]:
    """Return (account, id, due time) of certificates to renew, earliest first."""
    return [(*row,) for row in tx.rows(_LIST_RENEWED, now=now, after=after, limit=limit)]


def list_over(tx: Connection, now: int, limit: int) -> list[tuple[str, str]]:
    """Return (account, id) of active certificates that have expired."""
    return [(row[0], row[1]) for row in tx.rows(_LIST_OVER, now=now, limit=limit)]


def list_ending(
    tx: Connection, now: int, days: int, until: int, limit: int
) -> list[tuple[str, str]]:
    """Return (account, id) of active uploads that expire by `until` and lack the `days` warning.

    Uploads that have expired by `now`, or have a warning for fewer days, are left out.
    """
    rows = tx.rows(_LIST_ENDING, now=now, days=days, until=until, limit=limit)
    return [(row[0], row[1]) for row in rows]


# Without a row of an account, the defaults apply.
certificate_settings = table(
    "certificate_settings",
    refers("account_id KEY", "accounts"),
    columns(sa.Boolean, "private_key_export"),
    columns(Moment, "updated_at"),
)

# All that authorities issued for a certificate; revoking it revokes those that have not expired.
certificate_issues = table(
    "certificate_issues",
    columns(sa.String(64), "fingerprint KEY"),
    refers("certificate_id", "certificates", "CASCADE"),
    refers("account_id", "accounts"),
    columns(sa.String(16), "issuer"),
    columns(sa.LargeBinary, "certificate"),  # DER
    columns(Moment, "expires_at"),
    indexes("certificate_id"),
)

# TXT values that the DNS server answers with while an authority checks domains.
certificate_texts = table(
    "certificate_texts",
    columns(ByteOrdered, "name KEY"),  # in lower case, ends in a dot
    columns(ByteOrdered, "value KEY"),
    refers("certificate_id", "certificates", "CASCADE"),
    indexes("certificate_id"),
)

# What uses a certificate; a certificate in use cannot be deleted.
certificate_users = table(
    "certificate_users",
    refers("certificate_id KEY", "certificates"),
    # a CRN, or a word for a part of the platform
    columns(ByteOrdered, "used_by KEY"),
)

# The install's own authority: roots, and issuing certificates signed by them.
certificate_authorities = table(
    "certificate_authorities",
    columns(sa.String(8), "role"),
    columns(sa.Integer, "generation"),  # 1, 2 …: the newest signs
    columns(sa.LargeBinary, "certificate"),  # DER
    columns(sa.LargeBinary, "private_key"),  # sealed
    columns(sa.LargeBinary, "revocation_list"),  # DER
    columns(sa.Integer, "list_number"),
    columns(Moment, "listed_at"),  # when the list was made
    columns(Moment, "expires_at"),
    one_of("role", "root", "issuing"),
    sa.UniqueConstraint("role", "generation"),
)

# Certificates that the install's own authority revoked; expired ones leave the lists.
certificate_revocations = table(
    "certificate_revocations",
    columns(ByteOrdered, "serial KEY"),  # in hex
    refers("authority_id KEY", "certificate_authorities"),
    columns(Moment, "revoked_at, expires_at"),
    named_index("authority_id", "authority_id, expires_at"),
)

_i = certificate_issues.c
_t = certificate_texts.c
_u = certificate_users.c
_MOST_USERS: Final = 10

_OF_CERTIFICATE: Final = given(_i.certificate_id, _i.account_id)
_ADD_ISSUE: Final = Statement(insert_new(certificate_issues, certificate_issues.c.keys()))
_LIST_ISSUES: Final = Statement(
    sa.select(_i.issuer, _i.certificate)
    .where(_OF_CERTIFICATE, _i.expires_at > sa.bindparam("now"))
    .order_by(_i.expires_at)
)
_FORGET_ISSUES: Final = Statement(
    certificate_issues.delete().where(_OF_CERTIFICATE, _i.expires_at <= sa.bindparam("now"))
)
_ADD_TEXT: Final = Statement(insert_new(certificate_texts, certificate_texts.c.keys()))
_CLEAR_TEXTS: Final = Statement(certificate_texts.delete().where(given(_t.certificate_id)))
_TEXTS: Final = Statement(sa.select(_t.value).where(given(_t.name)).order_by(_t.value))
_ADD_USER: Final = Statement(insert_new(certificate_users, certificate_users.c.keys()))
_REMOVE_USER: Final = Statement(
    certificate_users.delete().where(given(_u.certificate_id, _u.used_by))
)
_USERS: Final = paged(sa.select(_u.used_by).where(given(_u.certificate_id)).order_by(_u.used_by))


def add_issue(
    tx: Connection,
    account_id: str,
    certificate_id: str,
    issuer: str,
    fingerprint: str,
    certificate: bytes,
    expires_at: int,
) -> None:
    """Insert a certificate that an authority issued; `certificate` is its DER."""
    tx.execute(
        _ADD_ISSUE,
        fingerprint=fingerprint,
        certificate_id=certificate_id,
        account_id=account_id,
        issuer=issuer,
        certificate=certificate,
        expires_at=expires_at,
    )


def list_issues(
    tx: Connection, account_id: str, certificate_id: str, now: int
) -> list[tuple[str, bytes]]:
    """Return (authority, DER) of all unexpired certificates that were issued for a record."""
    rows = tx.rows(_LIST_ISSUES, account_id=account_id, certificate_id=certificate_id, now=now)
    return [(row[0], row[1]) for row in rows]


def forget_issues(tx: Connection, account_id: str, certificate_id: str, now: int) -> None:
    """Delete the expired rows that `add_issue` inserted for a certificate."""
    tx.execute(_FORGET_ISSUES, account_id=account_id, certificate_id=certificate_id, now=now)


def put_texts(
    tx: Connection, certificate_id: str, values: Iterable[tuple[str, Sequence[str]]]
) -> None:
    """Set the TXT values of DNS names; remove all earlier values of the certificate."""
    tx.execute(_CLEAR_TEXTS, certificate_id=certificate_id)
    for name, texts in values:
        for value in texts:
            tx.execute(_ADD_TEXT, name=name, value=value, certificate_id=certificate_id)


def txt_values(tx: Connection, name: str) -> list[str]:
    """Return the TXT values of a DNS name, which ends in a dot; case is ignored."""
    return [row[0] for row in tx.rows(_TEXTS, name=name.lower())]


def add_user(tx: Connection, certificate_id: str, used_by: str) -> None:
    """Record a user of a certificate; the caller must have locked the certificate."""
    tx.execute(_ADD_USER, certificate_id=certificate_id, used_by=used_by)


def remove_user(tx: Connection, certificate_id: str, used_by: str) -> None:
    """Delete a user of a certificate."""
    tx.execute(_REMOVE_USER, certificate_id=certificate_id, used_by=used_by)


def list_users(tx: Connection, certificate_id: str) -> list[str]:
    """Return up to `_MOST_USERS` users (`used_by`) of a certificate, sorted."""
    rows = tx.rows(_USERS, certificate_id=certificate_id, limit=_MOST_USERS)
    return [row[0] for row in rows]

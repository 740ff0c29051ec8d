"""Queries of what belongs to a certificate: what was issued, its TXT records, and who uses it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import bindparam, select
from sqlalchemy.dialects.postgresql import insert

from cloudcore.certificate.tables import certificate_issues, certificate_texts, certificate_users
from cloudcore.db.base import Connection
from cloudcore.db.rows import bound
from cloudcore.db.statement import Statement, page

_i = certificate_issues.c
_t = certificate_texts.c
_u = certificate_users.c
_MOST_USERS: Final = 10

_ADD_ISSUE: Final = Statement(
    insert(certificate_issues).values(bound(certificate_issues.c.keys())).on_conflict_do_nothing()
)
_LIST_ISSUES: Final = Statement(
    select(_i.issuer, _i.certificate)
    .where(
        _i.certificate_id == bindparam("certificate_id"),
        _i.account_id == bindparam("account_id"),
        _i.expires_at > bindparam("now"),
    )
    .order_by(_i.expires_at)
)
_FORGET_ISSUES: Final = Statement(
    certificate_issues.delete().where(
        _i.certificate_id == bindparam("certificate_id"),
        _i.account_id == bindparam("account_id"),
        _i.expires_at <= bindparam("now"),
    )
)
_ADD_TEXT: Final = Statement(
    insert(certificate_texts)
    .values(bound(("name", "value", "certificate_id")))
    .on_conflict_do_nothing()
)
_CLEAR_TEXTS: Final = Statement(
    certificate_texts.delete().where(_t.certificate_id == bindparam("certificate_id"))
)
_TEXTS: Final = Statement(select(_t.value).where(_t.name == bindparam("name")).order_by(_t.value))
_ADD_USER: Final = Statement(
    insert(certificate_users)
    .values(certificate_id=bindparam("certificate_id"), used_by=bindparam("used_by"))
    .on_conflict_do_nothing()
)
_REMOVE_USER: Final = Statement(
    certificate_users.delete().where(
        _u.certificate_id == bindparam("certificate_id"), _u.used_by == bindparam("used_by")
    )
)
_USERS: Final = Statement(
    page(
        select(_u.used_by)
        .where(_u.certificate_id == bindparam("certificate_id"))
        .order_by(_u.used_by)
    )
)


def add_issue(
    tx: Connection,
    account_id: str,
    certificate_id: str,
    issuer: str,
    fingerprint: str,
    certificate: bytes,
    expires_at: int,
) -> None:
    """Note a certificate that an authority issued; `certificate` is its DER."""
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
    """Return what was issued for a certificate and has not expired: the authority, and the DER."""
    rows = tx.rows(_LIST_ISSUES, account_id=account_id, certificate_id=certificate_id, now=now)
    return [(row[0], bytes(row[1])) for row in rows]


def forget_issues(tx: Connection, account_id: str, certificate_id: str, now: int) -> None:
    """Forget what was issued for a certificate and has expired."""
    tx.execute(_FORGET_ISSUES, account_id=account_id, certificate_id=certificate_id, now=now)


def put_texts(
    tx: Connection, certificate_id: str, values: Iterable[tuple[str, Sequence[str]]]
) -> None:
    """Let names have these TXT values, in place of all of the certificate before."""
    tx.execute(_CLEAR_TEXTS, certificate_id=certificate_id)
    for name, texts in values:
        for value in texts:
            tx.execute(_ADD_TEXT, name=name, value=value, certificate_id=certificate_id)


def txt_values(tx: Connection, name: str) -> list[str]:
    """Return the TXT values of a name, which ends in a dot; in any case, or none."""
    return [row[0] for row in tx.rows(_TEXTS, name=name.lower())]


def add_user(tx: Connection, certificate_id: str, used_by: str) -> None:
    """Note that something serves a certificate, which is not deleted meanwhile."""
    tx.execute(_ADD_USER, certificate_id=certificate_id, used_by=used_by)


def remove_user(tx: Connection, certificate_id: str, used_by: str) -> None:
    """Note that something serves a certificate no more."""
    tx.execute(_REMOVE_USER, certificate_id=certificate_id, used_by=used_by)


def list_users(tx: Connection, certificate_id: str) -> list[str]:
    """Return the first of what serves a certificate."""
    rows = tx.rows(_USERS, certificate_id=certificate_id, limit=_MOST_USERS)
    return [row[0] for row in rows]

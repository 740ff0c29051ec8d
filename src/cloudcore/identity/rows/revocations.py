"""Queries that revoke access tokens (by `jti`) and login credentials."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, literal_column, select

from cloudcore.db.base import Connection
from cloudcore.db.deletion import deletion
from cloudcore.db.rows import insert_new
from cloudcore.db.statement import Statement, page
from cloudcore.identity.tables import login_credentials, revoked_tokens

_t = revoked_tokens.c
_l = login_credentials.c


class LoginHolder(NamedTuple):
    """A container client's login credential, with its session or service account."""

    id: str
    service_account_id: str | None
    sid: str | None
    account_id: str


_ADD: Final = Statement(insert_new(revoked_tokens, ("jti", "expires_at")))
_IS_REVOKED: Final = Statement(
    page(select(literal_column("1")).select_from(revoked_tokens).where(_t.jti == bindparam("jti")))
)
_FORGET: Final = deletion(_t.expires_at)
_FIND_LOGIN: Final = Statement(
    select(_l.id, _l.service_account_id, _l.sid, _l.account_id).where(
        _l.password_sha256 == bindparam("hash")
    )
)
_REVOKE_LOGIN: Final = Statement(
    login_credentials.update()
    .where(_l.id == bindparam("login_id"), _l.revoked_at.is_(None))
    .values(revoked_at=bindparam("now"))
)


def revoke_token(tx: Connection, jti: str, expires_at: int) -> None:
    """Mark a token as revoked until it expires."""
    tx.execute(_ADD, jti=jti, expires_at=expires_at)


def is_token_revoked(tx: Connection, jti: str) -> bool:
    """Return True if a token was revoked."""
    return tx.row(_IS_REVOKED, jti=jti, limit=1) is not None


def find_login(tx: Connection, password_sha256: str) -> LoginHolder | None:
    """Return the login credential with this password, valid or not, or None."""
    row = tx.row(_FIND_LOGIN, hash=password_sha256)
    return LoginHolder(*row) if row else None


def revoke_login(tx: Connection, login_id: str, now: int) -> bool:
    """Revoke a login credential; return False if it was revoked before."""
    return tx.execute(_REVOKE_LOGIN, login_id=login_id, now=now) == 1


def forget_revoked_tokens(tx: Connection, before: int) -> int:
    """Delete a batch of the marks of tokens that expired by `before`; return how many."""
    return tx.execute(_FORGET, before=before)

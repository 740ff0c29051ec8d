"""Queries of issued codes, refresh tokens and container logins, and of revoked access tokens."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, literal_column, null, select

from cloudcore.db.base import Connection
from cloudcore.db.rows import deletion, find_one, insert_new
from cloudcore.db.statement import Statement, paged
from cloudcore.identity.tables import auth_codes, login_credentials, refresh_tokens, revoked_tokens

_c = auth_codes.c
_r = refresh_tokens.c


class Code(NamedTuple):
    """An authorization code; only its hash is stored."""

    code_sha256: str
    user_id: str
    client_id: str
    redirect_uri: str
    code_challenge: str
    sid: str | None
    """The session its first use started; None before that and after a second use."""
    created_at: int
    expires_at: int
    spent_at: int | None
    identity_provider_id: str | None = None
    """Where the person signed in, or None if here, by password."""


class RefreshToken(NamedTuple):
    """A refresh token; only its hash is stored."""

    token_sha256: str
    sid: str
    client_id: str
    """The client it is bound to."""
    created_at: int
    expires_at: int
    spent_at: int | None


_ADD_CODE: Final = Statement(insert_new(auth_codes, Code._fields))
_THE_CODE: Final = _c.code_sha256 == bindparam("hash")
_LOCK_CODE: Final = Statement(
    select(*(_c[name] for name in Code._fields)).where(_THE_CODE).with_for_update()
)
_SPEND_CODE: Final = Statement(
    auth_codes.update()
    .where(_THE_CODE, _c.spent_at.is_(None))
    .values(spent_at=bindparam("now"), sid=bindparam("for_sid"))
)
_DISOWN: Final = Statement(auth_codes.update().where(_THE_CODE).values(sid=null()))
forget_codes: Final = deletion(_c.expires_at)
"""Deletes a batch of the codes that have expired."""

_ADD_REFRESH: Final = Statement(insert_new(refresh_tokens, RefreshToken._fields))
_THE_REFRESH: Final = _r.token_sha256 == bindparam("hash")
_LOCK_REFRESH: Final = Statement(
    select(*(_r[name] for name in RefreshToken._fields)).where(_THE_REFRESH).with_for_update()
)
_SPEND_REFRESH: Final = Statement(
    refresh_tokens.update().where(_THE_REFRESH).values(spent_at=bindparam("now"))
)
forget_refresh_tokens: Final = deletion(_r.expires_at)
"""Deletes a batch of the refresh tokens that have expired."""


def add_code(tx: Connection, code: Code) -> None:
    """Insert a code."""
    tx.execute(_ADD_CODE, **code._asdict())


def lock_code(tx: Connection, code_sha256: str) -> Code | None:
    """Return a code, locked until the transaction ends, or None."""
    return find_one(tx, Code, _LOCK_CODE, hash=code_sha256)


def spend_code(tx: Connection, code_sha256: str, sid: str, now: int) -> bool:
    """Use up a code for the session `sid`; return False if it was used before."""
    return tx.execute(_SPEND_CODE, hash=code_sha256, for_sid=sid, now=now) == 1


def detach_code(tx: Connection, code_sha256: str) -> None:
    """Detach a used code from its session, so that the first use cannot start it any more."""
    tx.execute(_DISOWN, hash=code_sha256)


def add_refresh_token(tx: Connection, token: RefreshToken) -> None:
    """Insert a refresh token."""
    tx.execute(_ADD_REFRESH, **token._asdict())


def lock_refresh_token(tx: Connection, token_sha256: str) -> RefreshToken | None:
    """Return a refresh token, locked until the transaction ends, or None."""
    return find_one(tx, RefreshToken, _LOCK_REFRESH, hash=token_sha256)


def spend_refresh_token(tx: Connection, token_sha256: str, now: int) -> None:
    """Mark a refresh token as used."""
    tx.execute(_SPEND_REFRESH, hash=token_sha256, now=now)


_t = revoked_tokens.c
_l = login_credentials.c


class LoginHolder(NamedTuple):
    """A container client's login credential, with its session or service account."""

    id: str
    service_account_id: str | None
    sid: str | None
    account_id: str


_ADD: Final = Statement(insert_new(revoked_tokens, ("jti", "expires_at")))
_IS_REVOKED: Final = paged(
    select(literal_column("1")).select_from(revoked_tokens).where(_t.jti == bindparam("jti"))
)
forget_revoked_tokens: Final = deletion(_t.expires_at)
"""Deletes a batch of the marks of tokens that have expired."""
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
    return find_one(tx, LoginHolder, _FIND_LOGIN, hash=password_sha256)


def revoke_login(tx: Connection, login_id: str, now: int) -> bool:
    """Revoke a login credential; return False if it was revoked before."""
    return tx.execute(_REVOKE_LOGIN, login_id=login_id, now=now) == 1

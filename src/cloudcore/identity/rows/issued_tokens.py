"""Queries of issued codes, refresh tokens and container logins, and of revoked access tokens."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, null, select

from cloudcore.db.base import Connection
from cloudcore.db.rows import ONE, columns_of, deletion, find_one, first, given, insert_new
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import auth_codes, login_credentials, refresh_tokens, revoked_tokens

KEPT_SECONDS: Final = 24 * 3600
"""How many seconds sessions, codes and tokens are stored after their end."""

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
    """Id of the session for which the code was used; None before, and after a second use."""
    created_at: int
    expires_at: int
    spent_at: int | None
    identity_provider_id: str | None = None
    """Id of the provider at which the person signed in; None for a sign-in by password."""


class RefreshToken(NamedTuple):
    """A refresh token; only its hash is stored."""

    token_sha256: str
    sid: str
    client_id: str
    """The client that the token is bound to."""
    created_at: int
    expires_at: int
    spent_at: int | None


_THE_CODE: Final = _c.code_sha256 == bindparam("hash")
_THE_REFRESH: Final = _r.token_sha256 == bindparam("hash")

_ADD_CODE: Final = Statement(insert_new(auth_codes, Code._fields))
_LOCK_CODE: Final = Statement(
    columns_of(auth_codes, Code._fields).where(_THE_CODE).with_for_update()
)
_SPEND_CODE: Final = Statement(
    auth_codes.update()
    .where(_THE_CODE, _c.spent_at.is_(None))
    .values(spent_at=bindparam("now"), sid=bindparam("for_sid"))
)
_DETACH_CODE: Final = Statement(auth_codes.update().where(_THE_CODE).values(sid=null()))
forget_codes: Final = deletion(_c.expires_at, kept_seconds=KEPT_SECONDS)
"""Deletes a batch of the codes that expired over a day ago."""

_ADD_REFRESH_TOKEN: Final = Statement(insert_new(refresh_tokens, RefreshToken._fields))
_LOCK_REFRESH_TOKEN: Final = Statement(
    columns_of(refresh_tokens, RefreshToken._fields).where(_THE_REFRESH).with_for_update()
)
_SPEND_REFRESH_TOKEN: Final = Statement(
    refresh_tokens.update().where(_THE_REFRESH).values(spent_at=bindparam("now"))
)
forget_refresh_tokens: Final = deletion(_r.expires_at, kept_seconds=KEPT_SECONDS)
"""Deletes a batch of the refresh tokens that expired over a day ago."""

_t = revoked_tokens.c
_l = login_credentials.c


class LoginHolder(NamedTuple):
    """A container client's login credential, with its session or service account."""

    id: str
    service_account_id: str | None
    sid: str | None
    account_id: str


_REVOKE_TOKEN: Final = Statement(insert_new(revoked_tokens, ("jti", "expires_at")))
_IS_TOKEN_REVOKED: Final = Statement(
    first(select(ONE).select_from(revoked_tokens).where(given(_t.jti)))
)
forget_revoked_tokens: Final = deletion(_t.expires_at, kept_seconds=KEPT_SECONDS)
"""Deletes a batch of the revocations of tokens that expired over a day ago."""
_FIND_LOGIN: Final = Statement(
    columns_of(login_credentials, LoginHolder._fields).where(
        _l.password_sha256 == bindparam("hash")
    )
)
_REVOKE_LOGIN: Final = Statement(
    login_credentials.update()
    .where(_l.id == bindparam("login_id"), _l.revoked_at.is_(None))
    .values(revoked_at=bindparam("now"))
)


def add_code(tx: Connection, new: Code) -> None:
    """Insert a code; do nothing if it exists."""
    tx.execute(_ADD_CODE, **new._asdict())


def lock_code(tx: Connection, sha256: str) -> Code | None:
    """Return a code by its hash, locked until the transaction ends; None if missing."""
    return find_one(tx, Code, _LOCK_CODE, hash=sha256)


def spend_code(tx: Connection, sha256: str, for_sid: str, now: int) -> bool:
    """Mark a code as used for a session; return False if it was used before, or is missing."""
    return tx.execute(_SPEND_CODE, hash=sha256, for_sid=for_sid, now=now) == 1


def detach_code(tx: Connection, sha256: str) -> None:
    """Detach a used code from its session id, so that the session can no longer be started."""
    tx.execute(_DETACH_CODE, hash=sha256)


def add_refresh_token(tx: Connection, new: RefreshToken) -> None:
    """Insert a refresh token; do nothing if it exists."""
    tx.execute(_ADD_REFRESH_TOKEN, **new._asdict())


def lock_refresh_token(tx: Connection, sha256: str) -> RefreshToken | None:
    """Return a refresh token by its hash, locked until the transaction ends; None if missing."""
    return find_one(tx, RefreshToken, _LOCK_REFRESH_TOKEN, hash=sha256)


def spend_refresh_token(tx: Connection, sha256: str, now: int) -> None:
    """Mark a refresh token as used."""
    tx.execute(_SPEND_REFRESH_TOKEN, hash=sha256, now=now)


def revoke_token(tx: Connection, jti: str, expires_at: int) -> None:
    """Mark an access token as revoked until it expires."""
    tx.execute(_REVOKE_TOKEN, jti=jti, expires_at=expires_at)


def is_token_revoked(tx: Connection, jti: str) -> bool:
    """Return True if an access token was revoked."""
    return tx.row(_IS_TOKEN_REVOKED, jti=jti) is not None


def find_login(tx: Connection, password_sha256: str) -> LoginHolder | None:
    """Return the login credential with this password's hash, even if not valid; None if missing."""
    return find_one(tx, LoginHolder, _FIND_LOGIN, hash=password_sha256)


def revoke_login(tx: Connection, login_id: str, now: int) -> bool:
    """Revoke a login credential; return False, and change nothing, if it was revoked before."""
    return tx.execute(_REVOKE_LOGIN, login_id=login_id, now=now) == 1

"""Queries of issued codes, refresh tokens and container logins, and of revoked access tokens."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, null, select

from cloudcore.db.calls import Add, Execute, Exists, Find
from cloudcore.db.rows import ONE, columns, deletion, first, given, insert_new
from cloudcore.identity.tables import auth_codes, login_credentials, refresh_tokens, revoked_tokens

KEPT_SECONDS: Final = 24 * 3600
"""How long sessions and what was issued are kept after their end."""

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


_THE_CODE: Final = _c.code_sha256 == bindparam("hash")
_THE_REFRESH: Final = _r.token_sha256 == bindparam("hash")

add_code: Final = Add(auth_codes, Code)
lock_code: Final = Find[Code, str](
    Code, columns(auth_codes, Code._fields).where(_THE_CODE).with_for_update(), "hash"
)
"""Finds a code by its hash, and locks it until the transaction ends."""
spend_code: Final = Execute[str, str, int](
    auth_codes.update()
    .where(_THE_CODE, _c.spent_at.is_(None))
    .values(spent_at=bindparam("now"), sid=bindparam("for_sid")),
    *("hash", "for_sid", "now"),
)
"""Uses up a code for a session; changes nothing if it was used before."""
detach_code: Final = Execute[str](auth_codes.update().where(_THE_CODE).values(sid=null()), "hash")
"""Detaches a used code from its session, so that the first use cannot start it any more."""
forget_codes: Final = deletion(_c.expires_at, kept_seconds=KEPT_SECONDS)
"""Deletes a batch of the codes that expired over a day ago."""

add_refresh_token: Final = Add(refresh_tokens, RefreshToken)
lock_refresh_token: Final = Find[RefreshToken, str](
    RefreshToken,
    columns(refresh_tokens, RefreshToken._fields).where(_THE_REFRESH).with_for_update(),
    "hash",
)
"""Finds a refresh token by its hash, and locks it until the transaction ends."""
spend_refresh_token: Final = Execute[str, int](
    refresh_tokens.update().where(_THE_REFRESH).values(spent_at=bindparam("now")), "hash", "now"
)
"""Marks a refresh token as used."""
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


revoke_token: Final = Execute[str, int](
    insert_new(revoked_tokens, ("jti", "expires_at")), "jti", "expires_at"
)
"""Marks an access token as revoked until it expires."""
is_token_revoked: Final = Exists[str](
    first(select(ONE).select_from(revoked_tokens).where(given(_t.jti))), "jti"
)
forget_revoked_tokens: Final = deletion(_t.expires_at, kept_seconds=KEPT_SECONDS)
"""Deletes a batch of the marks of tokens that expired over a day ago."""
find_login: Final = Find[LoginHolder, str](
    LoginHolder,
    columns(login_credentials, LoginHolder._fields).where(_l.password_sha256 == bindparam("hash")),
    "hash",
)
"""Finds the login credential with this password, valid or not."""
revoke_login: Final = Execute[str, int](
    login_credentials.update()
    .where(_l.id == bindparam("login_id"), _l.revoked_at.is_(None))
    .values(revoked_at=bindparam("now")),
    *("login_id", "now"),
)
"""Revokes a login credential; changes nothing if it was revoked before."""

"""Revoke tokens (RFC 7009): the holder may revoke a token, and the answer reveals nothing.

Revoking an access token of a program or a person ends only that token. Revoking a refresh token,
a session token, or the access token of an assumed role ends the whole session: both forms of a
role session, and the login credentials made in it.
"""

from __future__ import annotations

import hmac
import re
from functools import partial
from typing import Final

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.errors import Unauthenticated
from cloudcore.identity.audit import (
    record_login_end,
    record_program_sign_out,
    record_sign_out,
)
from cloudcore.identity.oauth import authenticate_client
from cloudcore.identity.oauth_forms import CLI, Form, OAuthClient
from cloudcore.identity.rows import sessions, sign_ins
from cloudcore.identity.rows.service_accounts import find_key_owner
from cloudcore.identity.rows.sessions import LiveSession
from cloudcore.identity.rows.sign_ins import lock_refresh_token
from cloudcore.identity.sessions import REFRESH_PREFIX, hash_of
from cloudcore.identity.tokens import AccessClaims, AccessTokens
from cloudcore.web.context import RequestContext

SESSION_TOKEN: Final = re.compile(
    r"est_([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})_.+"
)
"""Prefix of the session tokens of assumed roles; the session's id follows."""


async def revoke(
    ctx: RequestContext, tokens: AccessTokens, form: Form, client: OAuthClient
) -> None:
    """Revoke the form's token if it is valid and belongs to the client.

    An unauthenticated client may revoke any token that it holds. A form without a token revokes
    nothing and is accepted.

    Raises:
        Unauthenticated: the client named itself and its secret is wrong.

    """
    asker: str | None = None
    if client.is_public:
        asker = CLI
    elif client.id is not None or client.secret is not None:
        asker = (await authenticate_client(ctx, client)).service_account_id
    token = form.get("token")
    if not token:
        return
    try:
        claims = tokens.verify(token)
    except Unauthenticated:
        claims = None
    await ctx.database.write(partial(_revoke, ctx), token, claims, asker, ctx.clock())


def _revoke(
    ctx: RequestContext,
    tx: Connection,
    token: str,
    claims: AccessClaims | None,
    asker: str | None,
    now: int,
) -> None:
    if claims is not None:
        if not sign_ins.is_token_revoked(tx, claims.jti):
            _revoke_access_token(ctx, tx, claims, asker, now)
        return
    session = _session_of(tx, token, now)
    if session is not None:
        if asker in (None, _client_of(tx, session, now)):
            sessions.revoke_session(tx, session.id, now)
            record_sign_out(ctx, tx, session, "session")
        return
    login = sign_ins.find_login(tx, hash_of(token))
    if login is not None and asker in (None, _client_of_login(tx, login, now)):
        _revoke_login(ctx, tx, login, now)


def _revoke_login(
    ctx: RequestContext, tx: Connection, login: sign_ins.LoginHolder, now: int
) -> None:
    if not sign_ins.revoke_login(tx, login.id, now):
        return
    if login.service_account_id is not None:
        record_login_end(ctx, tx, login.account_id, login.service_account_id)
    elif session := sessions.find_session_of_login(tx, login.sid or "", now):
        record_sign_out(ctx, tx, session, "login")


def _revoke_access_token(
    ctx: RequestContext, tx: Connection, claims: AccessClaims, asker: str | None, now: int
) -> None:
    if claims.sid is None:
        owner = find_key_owner(tx, claims.akid or "")
        if owner is None or asker not in (None, owner.service_account_id):
            return
        record_program_sign_out(ctx, tx, owner.account_id, owner.service_account, "token")
    else:
        session = sessions.find_live_session(tx, claims.sid, now)
        if session is None or asker not in (None, _client_of(tx, session, now)):
            return
        record_sign_out(ctx, tx, session, "token" if session.role_id is None else "session")
        if session.role_id is not None:
            sessions.revoke_session(tx, session.id, now)
            return
    sign_ins.revoke_token(tx, claims.jti, claims.exp * MICROSECONDS)


def _session_of(tx: Connection, token: str, now: int) -> LiveSession | None:
    """Return the session of a refresh token, used or not, or of a session token."""
    if token.startswith(REFRESH_PREFIX):
        found = lock_refresh_token(tx, hash_of(token))
        return None if found is None else sessions.find_live_session(tx, found.sid, now)
    named = SESSION_TOKEN.fullmatch(token)
    if named is None:
        return None
    session = sessions.find_live_session(tx, "-".join(named.groups()), now)
    if session is None or not hmac.compare_digest(session.token_sha256 or "", hash_of(token)):
        return None
    return session


def _client_of(tx: Connection, session: LiveSession | None, now: int) -> str | None:
    """Return the client a session was issued to: a service account's id, the command, or None."""
    while session is not None:
        if session.user_id is not None:
            return CLI
        if session.source_service_account_id is not None:
            return session.source_service_account_id
        session = sessions.find_live_session(tx, session.parent_sid or "", now)
    return None


def _client_of_login(tx: Connection, login: sign_ins.LoginHolder, now: int) -> str | None:
    if login.sid is None:
        return login.service_account_id
    return _client_of(tx, sessions.find_session_of_login(tx, login.sid, now), now)

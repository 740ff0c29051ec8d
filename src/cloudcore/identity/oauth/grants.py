"""Issue tokens (RFC 6749), authenticate clients, and revoke tokens (RFC 7009).

Programs send a key pair (client credentials). Persons sign in on the page; their client sends the
code from the page, and later refresh tokens (`cloudcore.identity.oauth.sessions`).

The holder of a token may revoke it; the answer does not tell whether the token was valid. Revoking
an access token of a program or a person ends only that token. Revoking a refresh token, a session
token, or the access token of an assumed role ends the whole session: both credentials of a role
session, and the container logins of the session.
"""

from __future__ import annotations

import hmac
import re
from functools import partial
from typing import Final

from msgspec import UNSET, UnsetType

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput, Unauthenticated
from cloudcore.identity import audit
from cloudcore.identity.credentials import hash_of, id_in
from cloudcore.identity.last_uses import LastUses
from cloudcore.identity.names import iam_crn
from cloudcore.identity.oauth import forms, sessions
from cloudcore.identity.oauth.forms import CLI, PUBLIC, Form, OAuthClient, OAuthRefused, required
from cloudcore.identity.oauth.sessions import REFRESH_PREFIX
from cloudcore.identity.rights.assume_role import SESSION_PREFIX
from cloudcore.identity.rows import issued_tokens
from cloudcore.identity.rows import sessions as session_rows
from cloudcore.identity.rows.service_accounts import KeyOwner, find_key_owner
from cloudcore.identity.rows.sessions import LiveSession
from cloudcore.identity.tokens import access_tokens
from cloudcore.identity.tokens.access_tokens import AccessClaims, AccessTokens
from cloudcore.web.context import RequestContext
from cloudcore.wire import ResponseBody

_DURATION: Final = re.compile(r"-?[0-9]+")
_MAX_DIGITS: Final = 18
"""Maximum digits to parse; longer numbers are clamped, because parsing takes quadratic time."""
_DUMMY: Final = hash_of("")


class IssuedToken(ResponseBody, kw_only=True):
    """The answer of the token endpoint (RFC 6749 §5.1)."""

    access_token: str
    token_type: str = "Bearer"  # noqa: S105 - the name of the scheme
    expires_in: int
    """Seconds until the access token expires."""
    refresh_token: str | UnsetType = UNSET


async def grant_token(
    ctx: RequestContext, tokens: AccessTokens, uses: LastUses, form: Form, client: OAuthClient
) -> IssuedToken:
    """Issue the token that a form of the token endpoint requests.

    Raise `Unauthenticated` if the client is unknown, or its secret is wrong; `InvalidInput`, or its
    subclass `OAuthRefused`, if the form is refused.
    """
    match required(form, "grant_type"):
        case "client_credentials":
            return await _by_client_credentials(ctx, tokens, uses, form, client)
        case "authorization_code":
            return await _by_code(ctx, tokens, form, client)
        case "refresh_token":
            return await _by_refresh_token(ctx, tokens, form, client)
        case _:
            raise OAuthRefused("unsupported_grant_type", "there is no such grant_type here")


async def _authenticate_client(ctx: RequestContext, client: OAuthClient) -> KeyOwner:
    """Return the owner of a client's key pair, even if the owner is suspended.

    An unknown key takes the same work and gives the same error as a wrong secret.

    Raise `Unauthenticated` if the key is unknown or not usable, or the secret is wrong.
    """
    owner = await ctx.database.read(find_key_owner, client.id or "")
    expected = _DUMMY if owner is None else owner.secret_sha256
    shown = hash_of(client.secret or "")
    is_right = hmac.compare_digest(shown, expected)
    if owner is None:
        raise forms.wrong_client()
    if not (is_right and owner.is_usable(ctx.clock())):
        audit.count_wrong_key(ctx, owner)
        raise forms.wrong_client()
    return owner


async def _by_client_credentials(
    ctx: RequestContext, tokens: AccessTokens, uses: LastUses, form: Form, client: OAuthClient
) -> IssuedToken:
    seconds = access_tokens.clamp_duration(_duration(form))
    if form.get("scope"):
        raise OAuthRefused("invalid_scope", "there are no scopes; rights come from policies")
    if client.is_public:
        raise OAuthRefused("unauthorized_client", "a person signs in by the authorization code")
    owner = await _authenticate_client(ctx, client)
    if owner.is_suspended:
        audit.count_wrong_key(ctx, owner)
        words = "the account or service account is suspended; keep the key"
        raise OAuthRefused("unauthorized_client", words)
    now = ctx.clock()
    uses.note_key(owner.key_id)
    if owner.expires_at is not None:
        left = owner.expires_at // MICROSECONDS - now // MICROSECONDS
        seconds = min(seconds, max(left, 1))
    if ctx.auditor is not None:
        await ctx.database.write_relaxed(partial(audit.record_key_use, ctx), owner)
    token = tokens.issue(
        iam_crn(owner.account_id, "service-account", owner.service_account),
        ctx.new_id(),
        access_tokens.end_after(seconds, now),
        issued_at=now,
        account_id=owner.account_id,
        access_key_id=client.id,
    )
    return IssuedToken(access_token=token, expires_in=seconds)


def _duration(form: Form) -> int | None:
    text = form.get("duration_seconds")
    if not text:
        return None
    if not _DURATION.fullmatch(text):
        raise InvalidInput("duration_seconds is a whole number")
    digits = text.lstrip("-").lstrip("0") or "0"
    size = int(digits) if len(digits) <= _MAX_DIGITS else 10**_MAX_DIGITS
    return -size if text.startswith("-") else size


async def _by_code(
    ctx: RequestContext, tokens: AccessTokens, form: Form, client: OAuthClient
) -> IssuedToken:
    code = required(form, "code")
    # Spend the code before any other check: a failed attempt uses it up too.
    spent = await sessions.spend_code(ctx, code)
    await _check_public(ctx, client)
    proof = sessions.Proof(
        client_id=client.id or required(form, "client_id"),
        redirect_uri=required(form, "redirect_uri"),
        verifier=required(form, "code_verifier"),
    )
    signed_in = None if spent is None else await sessions.begin_session(ctx, spent, proof)
    if signed_in is None:
        raise OAuthRefused("invalid_grant", "the code is wrong, used or expired; sign in again")
    return _issued(ctx, tokens, signed_in)


async def _by_refresh_token(
    ctx: RequestContext, tokens: AccessTokens, form: Form, client: OAuthClient
) -> IssuedToken:
    token = required(form, "refresh_token")
    await _check_public(ctx, client)
    signed_in = None
    if client.id is None or client.id in PUBLIC:
        signed_in = await sessions.rotate_refresh_token(ctx, token, client.id)
    if signed_in is None:
        words = "the refresh token is wrong, used or expired; sign in again"
        raise OAuthRefused("invalid_grant", words)
    return _issued(ctx, tokens, signed_in)


async def _check_public(ctx: RequestContext, client: OAuthClient) -> None:
    """Raise if a client has a secret: codes and refresh tokens are for public clients.

    Raise `OAuthRefused` if the secret is right, `Unauthenticated` if it is wrong.
    """
    if client.secret is not None:
        await _authenticate_client(ctx, client)
        words = "a service account uses client_credentials; keep the key"
        raise OAuthRefused("unauthorized_client", words)


def _issued(ctx: RequestContext, tokens: AccessTokens, signed_in: sessions.SignedIn) -> IssuedToken:
    now = ctx.clock()
    expires_at = access_tokens.end_after(sessions.ACCESS_SECONDS, now)
    if signed_in.ends_at is not None:
        expires_at = min(expires_at, signed_in.ends_at - signed_in.ends_at % MICROSECONDS)
    token = tokens.issue(signed_in.crn, ctx.new_id(), expires_at, issued_at=now, sid=signed_in.sid)
    return IssuedToken(
        access_token=token,
        expires_in=expires_at // MICROSECONDS - now // MICROSECONDS,
        refresh_token=signed_in.refresh_token,
    )


async def revoke(
    ctx: RequestContext, tokens: AccessTokens, form: Form, client: OAuthClient
) -> None:
    """Revoke the form's token if it is valid and belongs to the client.

    A client that sends no id and no secret may revoke any token that it holds. A form without a
    token revokes nothing, and is accepted.

    Raise `Unauthenticated` if the client sends an id or a secret that is wrong.
    """
    requester: str | None = None
    if client.is_public:
        requester = CLI
    elif client.id is not None or client.secret is not None:
        requester = (await _authenticate_client(ctx, client)).service_account_id
    token = form.get("token")
    if not token:
        return
    try:
        claims = tokens.verify(token)
    except Unauthenticated:
        claims = None
    await ctx.database.write(partial(_revoke, ctx), token, claims, requester, ctx.clock())


def _revoke(
    ctx: RequestContext,
    tx: Connection,
    token: str,
    claims: AccessClaims | None,
    requester: str | None,
    now: int,
) -> None:
    if claims is not None:
        if not issued_tokens.is_token_revoked(tx, claims.jti):
            _revoke_access_token(ctx, tx, claims, requester, now)
        return
    session = _session_of(tx, token, now)
    if session is not None:
        if requester in (None, _client_of(tx, session, now)):
            session_rows.revoke_session(tx, session.id, now)
            audit.record_sign_out(ctx, tx, session, "session")
        return
    login = issued_tokens.find_login(tx, hash_of(token))
    if login is not None:
        _revoke_login(ctx, tx, login, requester, now)


def _revoke_login(
    ctx: RequestContext,
    tx: Connection,
    login: issued_tokens.LoginHolder,
    requester: str | None,
    now: int,
) -> None:
    session = session_rows.find_session_of_login(tx, login.sid, now) if login.sid else None
    client = _client_of(tx, session, now) if login.sid else login.service_account_id
    if requester not in (None, client) or not issued_tokens.revoke_login(tx, login.id, now):
        return
    if login.service_account_id is not None:
        audit.record_login_end(ctx, tx, login.account_id, login.service_account_id)
    elif session is not None:
        audit.record_sign_out(ctx, tx, session, "login")


def _revoke_access_token(
    ctx: RequestContext, tx: Connection, claims: AccessClaims, requester: str | None, now: int
) -> None:
    if claims.sid is None:
        owner = find_key_owner(tx, claims.akid or "")
        if owner is None or requester not in (None, owner.service_account_id):
            return
        audit.record_program_sign_out(ctx, tx, owner.account_id, owner.service_account, "token")
    else:
        session = session_rows.find_live_session(tx, claims.sid, now)
        if session is None or requester not in (None, _client_of(tx, session, now)):
            return
        audit.record_sign_out(ctx, tx, session, "token" if session.role_id is None else "session")
        if session.role_id is not None:
            session_rows.revoke_session(tx, session.id, now)
            return
    issued_tokens.revoke_token(tx, claims.jti, claims.exp * MICROSECONDS)


def _session_of(tx: Connection, token: str, now: int) -> LiveSession | None:
    """Return the live session of a refresh token (even if used) or of a session token, or None."""
    if token.startswith(REFRESH_PREFIX):
        found = issued_tokens.lock_refresh_token(tx, hash_of(token))
        return None if found is None else session_rows.find_live_session(tx, found.sid, now)
    sid = id_in(SESSION_PREFIX, token)
    session = None if sid is None else session_rows.find_live_session(tx, sid, now)
    if session is None or not hmac.compare_digest(session.token_sha256 or "", hash_of(token)):
        return None
    return session


def _client_of(tx: Connection, session: LiveSession | None, now: int) -> str | None:
    """Return the client of a session, or None if the session or its client is unknown.

    The client is that of the session that began the chain: `CLI` for a person, or the id of a
    service account.
    """
    while session is not None:
        if session.user_id is not None:
            return CLI
        if session.source_service_account_id is not None:
            return session.source_service_account_id
        session = session_rows.find_live_session(tx, session.parent_sid or "", now)
    return None

"""Sessions of persons: exchange a code for a session, and rotate its refresh tokens.

Codes and refresh tokens can be used once. A second use means that two parties have the same secret,
so it revokes the session of the first use (RFC 6749 §4.1.2, RFC 9700 §4.14).
"""

from __future__ import annotations

import hmac
import re
import secrets
from functools import partial
from typing import Final, NamedTuple

from cloudcore.base64url import code_challenge
from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.identity.audit import record_sign_in
from cloudcore.identity.credentials import hash_of
from cloudcore.identity.names import person_crn
from cloudcore.identity.rows import issued_tokens
from cloudcore.identity.rows import sessions as rows
from cloudcore.identity.rows.identity_providers import lock_provider
from cloudcore.identity.rows.issued_tokens import Code, RefreshToken
from cloudcore.identity.rows.sessions import Session
from cloudcore.identity.rows.users import find_user
from cloudcore.web.context import RequestContext

OUT_OF_BAND: Final = "urn:ietf:wg:oauth:2.0:oob"
"""The `redirect_uri` for which the page shows the code, for the person to copy, instead of a
redirect."""
CODE_SECONDS: Final = 300
ACCESS_SECONDS: Final = 3600
SESSION_SECONDS: Final = 30 * 24 * 3600
"""Lifetime of a session; each refresh begins it anew, but not beyond `Session.ends_at`."""

REFRESH_PREFIX: Final = "ert_"
_CODE_PREFIX: Final = "eac_"
_VERIFIER: Final = re.compile(r"[A-Za-z0-9._~-]{43,128}")  # RFC 7636 §4.1


class CodeDestination(NamedTuple):
    """The client that a code is for, and its `redirect_uri`."""

    client_id: str
    redirect_uri: str


class Proof(NamedTuple):
    """The parameters that a client must send with a code."""

    client_id: str
    redirect_uri: str
    verifier: str


class SignedIn(NamedTuple):
    """A session and its newest refresh token."""

    sid: str
    crn: str
    """The CRN of the person who signed in."""
    refresh_token: str
    ends_at: int | None = None
    """When the session ends for good, or None if each refresh renews it."""


def new_code(
    user_id: str, destination: CodeDestination, code_challenge: str, now: int
) -> tuple[str, Code]:
    """Generate an authorization code for a person who has just signed in; return (code, row)."""
    code = _CODE_PREFIX + secrets.token_urlsafe(32)
    expires_at = now + CODE_SECONDS * MICROSECONDS
    return code, Code(
        hash_of(code), user_id, *destination, code_challenge, None, now, expires_at, None
    )


async def spend_code(ctx: RequestContext, code: str) -> Code | None:
    """Mark a code as used, durably, and return it; None if it was used before or never existed.

    The returned `sid` is the id of the session that may be started with the code.
    """
    return await ctx.database.write(_spend, hash_of(code), ctx.new_id(), ctx.clock())


def _spend(tx: Connection, code_sha256: str, sid: str, now: int) -> Code | None:
    is_first = issued_tokens.spend_code(tx, code_sha256, sid, now)
    code = issued_tokens.lock_code(tx, code_sha256)
    if is_first:
        return code
    if code is not None and code.sid is not None:
        rows.revoke_session(tx, code.sid, now)
        issued_tokens.detach_code(tx, code_sha256)  # the first use may not have its session yet
    return None


async def begin_session(ctx: RequestContext, spent: Code, proof: Proof) -> SignedIn | None:
    """Start the session of a spent code; return None if this is refused.

    It is refused if the code has expired or was used again, the proof does not match, or the person
    or the identity provider is not active.
    """
    now = ctx.clock()
    if now >= spent.expires_at or not _fits(spent, proof):
        return None
    return await ctx.database.write(partial(_begin, ctx), spent, _new_refresh_token(), now)


def _fits(code: Code, proof: Proof) -> bool:
    return (
        _VERIFIER.fullmatch(proof.verifier) is not None
        and hmac.compare_digest(code_challenge(proof.verifier), code.code_challenge)
        and proof.client_id == code.client_id
        and proof.redirect_uri == code.redirect_uri
    )


def _begin(
    ctx: RequestContext, tx: Connection, spent: Code, refresh_token: str, now: int
) -> SignedIn | None:
    at_provider = spent.identity_provider_id
    provider = None if at_provider is None else lock_provider(tx, at_provider)
    code = issued_tokens.lock_code(tx, spent.code_sha256)
    if code is None or code.sid is None or code.sid != spent.sid:
        return None  # used a second time meanwhile
    user = find_user(tx, code.user_id)
    if user is None or user.status != "active":
        return None
    ends_at, by = None, {}
    if code.identity_provider_id is not None:
        if provider is None or provider.status != "active":
            return None
        ends_at = now + provider.session_hours * 3600 * MICROSECONDS
        by = {"identity_provider": provider.id}
    until = _renewed(now, ends_at)
    session = Session(code.sid, "user", now, until, user_id=user.id, ends_at=ends_at)
    rows.add_session(tx, session)
    _add_refresh_token(tx, refresh_token, code.sid, code.client_id, now, until)
    record_sign_in(ctx, tx, user, client=code.client_id, **by)
    return SignedIn(code.sid, person_crn(user.organization_id, user.id), refresh_token, ends_at)


async def rotate_refresh_token(
    ctx: RequestContext, token: str, client_id: str | None
) -> SignedIn | None:
    """Exchange a refresh token for its session with a new token; return None if it is not valid.

    A token is valid only for the client that it was issued to (RFC 6749 §6, RFC 9700 §4.14);
    `client_id` is None if the client sent no id. Using a token a second time revokes its session.
    """
    return await ctx.database.write(
        _rotate, hash_of(token), client_id, _new_refresh_token(), ctx.clock()
    )


def _rotate(
    tx: Connection, token_sha256: str, client_id: str | None, successor: str, now: int
) -> SignedIn | None:
    found = issued_tokens.lock_refresh_token(tx, token_sha256)
    if found is None:
        return None
    if found.spent_at is not None:
        rows.revoke_session(tx, found.sid, now)
        return None
    if client_id not in (None, found.client_id):
        return None
    session = rows.find_live_session(tx, found.sid, now)
    if session is None or session.user_id is None or now >= found.expires_at:
        return None
    issued_tokens.spend_refresh_token(tx, token_sha256, now)
    until = _renewed(now, session.ends_at)
    _add_refresh_token(tx, successor, session.id, found.client_id, now, until)
    rows.extend_session(tx, session.id, until)
    crn = person_crn(session.personal_organization_id or "", session.user_id)
    return SignedIn(session.id, crn, successor, session.ends_at)


def _renewed(now: int, ends_at: int | None) -> int:
    """Return the expiry of a session that begins or is refreshed at `now`, at most `ends_at`."""
    until = now + SESSION_SECONDS * MICROSECONDS
    return until if ends_at is None else min(until, ends_at)


def _new_refresh_token() -> str:
    return REFRESH_PREFIX + secrets.token_urlsafe(32)


def _add_refresh_token(
    tx: Connection, token: str, sid: str, client_id: str, now: int, until: int
) -> None:
    made = RefreshToken(hash_of(token), sid, client_id, now, until, None)
    issued_tokens.add_refresh_token(tx, made)

"""``entrepot whoami``: the acting principal, its account and role, and when its token expires."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from cloudcore.command_failures import RequestRefused
from cloudcore.commands.client import TokenClaims
from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Command


class Identity(msgspec.Struct):
    """The record that ``whoami`` prints."""

    registry: str
    """The base URL of the server."""
    principal: str
    """The CRN that policies name."""
    person: str | None
    """E-mail address of the person, even if in a role; null for a service account."""
    organization: str | None
    """The current organization of the person's session."""
    service_account: str | None
    role: str | None
    """The role that commands act in."""
    account: str | None
    """The account's handle; null without an account, or if the caller may not see it."""
    account_id: str | None
    """Null for a person without a role."""
    session_id: str | None
    """The session of a person or role; null for a service account."""
    access_key_id: str | None
    """The key with which a service account signed in."""
    expires_at: str
    """When the token expires."""
    is_renewed: bool
    """True if the command renews the token by itself; else a new sign-in is needed."""


def _show(run: Invocation) -> None:
    stored = run.sign_in
    # The first request renews the tokens, or fails if the sign-in has ended.
    handle = _handle_that_is_visible(run)
    claims = stored.claims()
    person = None
    if not stored.is_program:
        person = stored.client(in_role=False).call("GET", "/v1/users/me")["user"]
    kind, _, name = claims.sub.rpartition(":")[2].partition("/")
    identity = Identity(
        registry=stored.url,
        principal=claims.sub,
        person=person and person["email"],
        organization=person and person["organization"]["name"],
        service_account=name if kind == "service-account" else None,
        role=name if kind == "role" else None,
        account=_account(run, claims, handle),
        account_id=claims.acc,
        session_id=claims.sid,
        access_key_id=claims.akid,
        expires_at=f"{datetime.fromtimestamp(claims.exp, UTC):%Y-%m-%dT%H:%M:%SZ}",
        is_renewed=not stored.is_program,
    )
    run.show(msgspec.to_builtins(identity))


def _handle_that_is_visible(run: Invocation) -> str | None:
    """Return the handle of the caller's account, or None if the caller may not read it."""
    try:
        rows = list(run.sign_in.client(in_role=True).rows("/v1/accounts", "accounts"))
    except RequestRefused as error:
        if error.status != 403:
            raise
        return None
    return rows[0]["handle"] if len(rows) == 1 else None


def _account(run: Invocation, claims: TokenClaims, visible: str | None) -> str | None:
    """Return the handle of a token's account, or None if it has none or the handle is unknown.

    `visible` is the result of `_handle_that_is_visible`.
    """
    if claims.acc is None or run.sign_in.is_program:
        return visible if claims.acc else None
    # People may see the accounts of their roles, whatever the roles may do.
    for role in run.sign_in.client(in_role=False).rows("/v1/users/me/roles", "roles"):
        if role["account"]["id"] == claims.acc:
            handle: str = role["account"]["name"]
            return handle
    return visible


COMMANDS: Final = (Command("whoami", "show who you are here: account, role, session", run=_show),)

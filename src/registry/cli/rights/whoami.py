"""``entrepot whoami``: who acts, in which account and role, and until when."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

import msgspec

from cloudcore.command_line import TokenClaims
from registry.cli.options import Verbs, add_verb
from registry.cli.output import write_record
from registry.cli.stored_sign_in import StoredSignIn
from registry.cli.token_claims import claims_of
from registry.cli.transport import RequestRefused


class Identity(msgspec.Struct):
    """What ``whoami`` prints."""

    registry: str
    """The base URL."""
    principal: str
    """The CRN that policies name."""
    person: str | None
    """E-mail address, also of a person in a role."""
    organization: str | None
    """The one that the person's session works in."""
    service_account: str | None
    role: str | None
    """The role that commands act in."""
    account: str | None
    """The handle; null also if the caller's rights do not show it."""
    account_id: str | None
    """Null for a person without a role."""
    session_id: str | None
    """Of people and roles."""
    access_key_id: str | None
    """The key by which a service account signed in."""
    expires_at: str
    """The end of the token."""
    is_renewed: bool
    """True if the command gets a new token by itself; else a new sign-in is needed."""


def add_parsers(commands: Verbs) -> None:
    """Add ``whoami``."""
    add_verb(commands, "whoami", _show, "show who you are here: account, role, session")


def _show(options: argparse.Namespace) -> int:
    stored = StoredSignIn(options)
    # The first request renews the tokens, or fails if the sign-in has ended.
    handle = _handle_that_is_visible(stored)
    claims = claims_of(stored.tokens(in_role=True).token())
    person, organization = (None, None) if stored.is_program else _person(stored)
    kind, _, name = claims.sub.rpartition(":")[2].partition("/")
    identity = Identity(
        registry=stored.url,
        principal=claims.sub,
        person=person,
        organization=organization,
        service_account=name if kind == "service-account" else None,
        role=name if kind == "role" else None,
        account=_account(stored, claims, handle),
        account_id=claims.acc,
        session_id=claims.sid,
        access_key_id=claims.akid,
        expires_at=f"{datetime.fromtimestamp(claims.exp, UTC):%Y-%m-%dT%H:%M:%SZ}",
        is_renewed=not stored.is_program,
    )
    write_record(msgspec.to_builtins(identity), options.output)
    return 0


def _handle_that_is_visible(stored: StoredSignIn) -> str | None:
    """Return the handle of the caller's account, or None if its rights do not show it."""
    try:
        rows = list(stored.client(in_role=True).rows("/v1/accounts", "accounts"))
    except RequestRefused as error:
        if error.status != 403:
            raise
        return None
    return rows[0]["handle"] if len(rows) == 1 else None


def _person(stored: StoredSignIn) -> tuple[str, str]:
    """Return the person's e-mail address, and the organization that the session works in."""
    user = stored.client(in_role=False).call("GET", "/v1/users/me")["user"]
    return user["email"], user["organization"]["name"]


def _account(stored: StoredSignIn, claims: TokenClaims, visible: str | None) -> str | None:
    """Return the handle of the account of a token; None for a person, who acts in none."""
    if claims.acc is None or stored.is_program:
        return visible if claims.acc else None
    # People may see the accounts of their roles, whatever the roles may do.
    for role in stored.client(in_role=False).rows("/v1/users/me/roles", "roles"):
        if role["account"]["id"] == claims.acc:
            handle: str = role["account"]["name"]
            return handle
    return visible

"""Call ``/v1`` as the person who signed in, and choose an organization of theirs.

People act in organizations by themselves, and in accounts by a role. So the commands about people
use the token of the person, also while other commands act in a role.
"""

from __future__ import annotations

import argparse
from typing import Final

from cloudcore.uuids import parse_uuid
from registry.cli.api import ApiClient, Record
from registry.cli.failure import CommandFailure, Missing, Misuse
from registry.cli.output import printable
from registry.cli.stored_sign_in import StoredSignIn
from registry.cli.token_claims import claims_of

ORGANIZATIONS: Final = "/v1/organizations"


def open_person(options: argparse.Namespace) -> ApiClient:
    """Return a client that acts as the person who signed in.

    Raises:
        CommandFailure: a service account signed in.

    """
    stored = StoredSignIn(options)
    if stored.is_program:
        raise CommandFailure(
            f"only people may do this, and a service account is signed in to {stored.url}; "
            f"run 'entrepot login {stored.url}' without --access-key-id"
        )
    return stored.client(in_role=False)


def find_organization(client: ApiClient, options: argparse.Namespace) -> Record:
    """Return the organization that the command line names, or else the obvious one.

    That is the person's only one apart from the personal one, or the owner of the account in which
    other commands act.

    Raises:
        Missing: there is none.
        Misuse: several could be meant.

    """
    written = options.organization
    rows = list(client.rows(ORGANIZATIONS, "organizations"))
    if written is not None:
        found = [row for row in rows if written == row["name"] or parse_uuid(written) == row["id"]]
    else:
        found = [row for row in rows if not row["is_personal"]]
        if len(found) > 1:
            owner = _owner_of_account(client, options)
            found = [row for row in found if row["id"] == owner] or found
    if len(found) == 1:
        return found[0]
    if not found:
        named = "" if written is None else f" {printable(written)!r}"
        raise Missing(
            f"you are in no organization{named}; 'entrepot organizations list' shows yours, "
            "and an owner of another can invite you: 'entrepot invitations create EMAIL'"
        )
    names = ", ".join(f"{row['name']} ({row['id']})" for row in found)
    raise Misuse(f"name one of your organizations: {printable(names)}")


def _owner_of_account(client: ApiClient, options: argparse.Namespace) -> str | None:
    """Return the id of the organization that owns the account of the role, or None."""
    credential = StoredSignIn(options).credential
    if credential is None or credential.role_token is None:
        return None
    account = claims_of(credential.role_token.access_token).acc
    for row in client.rows("/v1/accounts", "accounts"):
        if row["id"] == account and row["organization"]:
            owner: str = row["organization"]["id"]
            return owner
    return None

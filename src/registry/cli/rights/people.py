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
from registry.cli.rights.lookup import Kind
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


def open_people(options: argparse.Namespace, *, needs_person: bool = False) -> ApiClient:
    """Return a client whose ``/v1/users`` are the people of the chosen organization.

    A person sees those of the organization that the session works in, so it is switched if
    necessary. A service account sees those of the organization that owns its account.

    Raises:
        CommandFailure: a service account signed in, and `needs_person` is set.

    """
    stored = StoredSignIn(options)
    if stored.is_program and not needs_person:
        return stored.client(in_role=True)
    client = open_person(options)
    wanted = find_organization(client, options)["id"]
    if client.call("GET", "/v1/users/me")["user"]["organization"]["id"] != wanted:
        client.create(f"{ORGANIZATIONS}/{wanted}/switch")
    return client


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
            "and an owner of another can invite you: 'entrepot users invite EMAIL'"
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


def add_organization(parser: argparse.ArgumentParser) -> None:
    """Add ``--organization``."""
    parser.add_argument(
        "--organization",
        metavar="NAME",
        help="an organization of yours, by name or id (the only one, or your account's)",
    )


def members_path(organization: Record) -> str:
    """Return the path of an organization's members."""
    return f"{ORGANIZATIONS}/{organization['id']}/members"


def providers_of(organization_id: str) -> Kind:
    """Return where ``/v1`` has the identity providers of an organization."""
    return Kind(
        "identity-providers",
        "identity provider",
        f"{ORGANIZATIONS}/{organization_id}/identity-providers",
        "identity_provider",
        "identity_providers",
    )


def find_member(client: ApiClient, organization: Record, written: str) -> Record:
    """Return a member of an organization by e-mail address, id or CRN.

    Raises:
        Missing: there is none.

    """
    for row in client.rows(members_path(organization), "members"):
        user = row["user"]
        if written in (user["id"], user["crn"]) or written.lower() == user["name"]:
            return row
    raise Missing(
        f"{printable(organization['name'])} has no member {printable(written)!r}; "
        "'entrepot organizations members' shows those it has"
    )

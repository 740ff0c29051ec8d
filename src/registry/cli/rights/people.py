"""Call ``/v1`` as the person who signed in, and choose an organization of theirs.

People act in organizations by themselves, and in accounts by a role. So the commands about people
use the token of the person, also while other commands act in a role.
"""

from __future__ import annotations

import argparse
import os
from typing import Final

from cloudcore.uuids import parse_uuid
from registry.cli.api import ApiClient, ApiTokens, Record
from registry.cli.credentials import Credential, credentials_path, load
from registry.cli.environment_key import KeyTokens, find_key
from registry.cli.failure import CommandFailure, Missing, Misuse
from registry.cli.output import printable
from registry.cli.rights.lookup import Kind
from registry.cli.rights.token_claims import claims_of
from registry.cli.sign_in import SignIn, choose_registry
from registry.cli.transport import Transport, base_url

ORGANIZATIONS: Final = "/v1/organizations"


class StoredSignIn:
    """The sign-in to the registry that the command line chooses: the stored one.

    An access key in the environment comes first, as everywhere.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._path = credentials_path(os.environ)
        named: str | None = options.registry
        self._key = find_key(os.environ, None if named is None else base_url(named))
        url = self._key.url if self._key else choose_registry(named, os.environ, self._path)
        self._transport = Transport(url)
        if self._key is None:  # one that is stored may be of the environment's registry
            self._key = find_key(os.environ, self._transport.url)
        self._key_tokens = KeyTokens(self._transport, self._key) if self._key else None

    @property
    def url(self) -> str:
        """Return the registry's base URL."""
        return self._transport.url

    @property
    def credential(self) -> Credential | None:
        """Return the stored credential, or None."""
        return load(self._path).get(self.url)

    @property
    def is_program(self) -> bool:
        """Return True if a service account signed in, which gets no refresh token."""
        if self._key is not None:
            return True
        credential = self.credential
        return credential is not None and credential.refresh_token is None

    def tokens(self, *, in_role: bool) -> ApiTokens:
        """Return the tokens of the role, or of whoever signed in."""
        if self._key_tokens is not None:
            return self._key_tokens
        return SignIn(self._transport, self._path, in_role=in_role)

    def client(self, *, in_role: bool) -> ApiClient:
        """Return a client with the tokens of the role, or of whoever signed in."""
        return ApiClient(self._transport, self.tokens(in_role=in_role))


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

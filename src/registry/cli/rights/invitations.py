"""``entrepot users invite``, ``invitations`` and ``revoke-invitation``."""

from __future__ import annotations

import argparse
from typing import Final

from registry.cli.api import Record
from registry.cli.failure import Missing
from registry.cli.listing import add_quiet, show_list
from registry.cli.options import Verbs, add_verb
from registry.cli.output import column, echo, printable, time_text
from registry.cli.rights.people import (
    ORGANIZATIONS,
    add_organization,
    find_organization,
    open_person,
)
from registry.cli.secret_text import add_quiet_secret, show_secret

MEMBER_ROLES: Final = ("member", "owner", "billing")
_COLUMNS: Final = (
    column("E-MAIL", "email"),
    column("ROLE", "role"),
    column("CREATED", "created_at", time_text),
    column("EXPIRES", "expires_at", time_text),
)


def add_parsers(verbs: Verbs) -> None:
    """Add the commands about invitations to those of users."""
    invite = add_verb(
        verbs, "invite", _invite, "invite a person who signs in here already, by a code"
    )
    invite.add_argument("email", metavar="EMAIL", help="under which the person signs in")
    invite.add_argument(
        "--role", choices=MEMBER_ROLES, default="member", help="in the organization (member)"
    )
    add_organization(invite)
    add_quiet_secret(invite, "the code, so that it can be piped")
    listing = add_verb(verbs, "invitations", _list, "list the invitations that wait")
    add_organization(listing)
    add_quiet(listing, "e-mail addresses")
    revoke = add_verb(verbs, "revoke-invitation", _revoke, "revoke an invitation and its code")
    revoke.add_argument("email", metavar="EMAIL", help="whom it invites; or its id")
    add_organization(revoke)


def _path(organization: Record) -> str:
    return f"{ORGANIZATIONS}/{organization['id']}/invitations"


def _invite(options: argparse.Namespace) -> int:
    client = open_person(options)
    organization = find_organization(client, options)
    document = {"email": options.email, "role": options.role}
    made = client.create(_path(organization), document)["invitation"]
    words = (
        f"Invited {made['email']} to {organization['name']} until {time_text(made['expires_at'])}; "
        f"give them the code: 'entrepot organizations accept {organization['id']}' asks for it"
    )
    show_secret(options, words, made, {"e-mail address": "email", "code": "code"})
    return 0


def _list(options: argparse.Namespace) -> int:
    client = open_person(options)
    rows = client.rows(_path(find_organization(client, options)), "invitations")
    return show_list(options, rows, _COLUMNS, lambda row: str(row["email"]))


def _revoke(options: argparse.Namespace) -> int:
    client = open_person(options)
    path = _path(find_organization(client, options))
    for row in client.rows(path, "invitations"):
        if options.email.lower() in (row["email"], row["id"]):
            client.call("DELETE", f"{path}/{row['id']}")
            echo(f"Revoked the invitation of {row['email']}", options.output)
            return 0
    raise Missing(
        f"{printable(options.email)!r} is not invited; 'entrepot users invitations' shows who is"
    )

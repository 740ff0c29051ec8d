"""``entrepot invitations``: offers to join an organization."""

from __future__ import annotations

from typing import Final

from cloudcore.command_line import (
    Cell,
    CommandLine,
    Deletion,
    Invocation,
    Noun,
    Option,
    Record,
    Secret,
)
from cloudcore.identity.commands.organizations import MEMBER_ROLES, ORGANIZATIONS
from cloudcore.identity.commands.people import person


def _created(run: Invocation, made: Record) -> str:
    organization = run.above.record
    until = f"{made['expires_at'][:19].replace('T', ' ')}Z"
    return (
        f"Invited {made['email']} to {organization['name']} until {until}; give them the code: "
        f"'entrepot organizations accept {organization['id']}' asks for it"
    )


INVITATIONS: Final = Noun(
    noun="invitations",
    words="codes by which people who sign in here already join an organization",
    path="invitations",
    parent=ORGANIZATIONS,
    is_below_option=True,
    one="invitation",
    many="invitations",
    name="email",
    metavar="EMAIL",
    known_by="whom it invites; or its id",
    is_lower=True,
    has_show=False,
    caller=person,
    columns=(
        Cell("E-MAIL", "email"),
        Cell("ROLE", "role"),
        Cell("CREATED", "created_at", "time"),
        Cell("EXPIRES", "expires_at", "time"),
    ),
    create=(
        Option("email", "under which the person signs in", metavar="EMAIL", is_argument=True),
        Option("role", "in the organization (member)", choices=MEMBER_ROLES),
    ),
    created=_created,
    secret=Secret("the code, so that it can be piped", {"e-mail address": "email", "code": "code"}),
    delete=Deletion(
        words="revoke an invitation and its code",
        question="Revoke the invitation of {email}?",
        said="Revoked the invitation of {email}",
    ),
)


def add_parsers(commands: CommandLine) -> None:
    """Add ``invitations`` and its commands."""
    commands.add_described(INVITATIONS)

"""``entrepot invitations``: offers to join an organization."""

from __future__ import annotations

from typing import Final

from cloudcore.command_line import Cell, CommandLine, Deletion, Noun, Option, Secret, argument
from cloudcore.identity.commands.organizations import MEMBER_ROLES, ORGANIZATIONS
from cloudcore.identity.commands.people import person

INVITATIONS: Final = Noun(
    noun="invitations",
    words="codes by which people who sign in here already join an organization",
    parent=ORGANIZATIONS,
    is_below_option=True,
    name="email",
    metavar="EMAIL",
    known_by="whom it invites; or its id",
    is_lower=True,
    has_show=False,
    caller=person,
    columns=(Cell("E-MAIL", "email"), "role", "created_at", "expires_at"),
    create=(
        argument("email", "under which the person signs in"),
        Option("role", "in the organization (member)", choices=MEMBER_ROLES),
    ),
    created=(
        "Invited {email} to {above.name} until {expires_at}; give them the code: "
        "'entrepot organizations accept {above.id}' asks for it"
    ),
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

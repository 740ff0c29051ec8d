"""``entrepot organizations``, ``members`` and ``invitations``: yours, and who is in them."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from cloudcore.command_line import (
    Act,
    Cell,
    Deletion,
    Invocation,
    Noun,
    Option,
    Record,
    Secret,
    argument,
)
from cloudcore.identity.commands.people import ORGANIZATIONS_PATH, find_organization, person

MEMBER_ROLES: Final = ("member", "owner", "billing")


def _find(run: Invocation, written: str) -> Record:
    return find_organization(run.client, run.sign_in, written)


def _accept(run: Invocation) -> bool:
    """Join an organization by the code of an invitation."""
    path = f"{ORGANIZATIONS_PATH}/{quote(run.values['id'], safe='')}/accept"
    joined = run.client.create(path, {"code": run.ask_secret("code")})["organization"]
    run.say(f"You are {joined['role']} in {joined['name']} now", joined)
    return True


def _leave(run: Invocation) -> bool:
    """Leave an organization."""
    name = run.record["name"]
    myself = run.client.call("GET", "/v1/users/me")["user"]["id"]
    run.confirm(f"Leave {name}, and lose your roles in its accounts?")
    run.client.call("DELETE", f"{run.path}/members/{myself}")
    run.say(f"You are no longer in {name}")
    return True


ORGANIZATIONS: Final = Noun(
    noun="organizations",
    words="organizations that you belong to",
    known_by="an organization of yours, by name or id (the only one, or your account's)",
    find=_find,
    caller=person,
    columns=(
        "name",
        Cell("YOUR ROLE", "role"),
        Cell("PERSONAL", "is_personal"),
        "created_at",
        "id",
    ),
    quiet="id",
    create=(argument("name", "what people call it"),),
    created="Created {name} ({id}); you own it",
    update=(Option("name", "the new one", metavar="NAME"),),
    updated="The organization is called {name} now",
    delete=Deletion(
        words="delete an organization without accounts",
        question="Delete the organization {name}?",
        said="Deleted the organization {name}",
    ),
    acts=(
        Act(
            verb="accept",
            words="join an organization by an invitation's code",
            is_of_all=True,
            options=(argument("id", "as who invited you knows it"),),
            run=_accept,
        ),
        Act("leave", "leave an organization, with your roles in it", asks=True, run=_leave),
    ),
)


MEMBERS: Final = Noun(
    noun="members",
    words="who belongs to an organization",
    parent=ORGANIZATIONS,
    is_below_option=True,
    name="user.name",
    within="user",
    metavar="EMAIL",
    known_by="e-mail address, id or CRN",
    is_of_account=False,
    is_lower=True,
    has_show=False,
    caller=person,
    columns=(Cell("E-MAIL", "user.name"), "role", Cell("SINCE", "created_at", "time")),
    update=(Option("role", "in the organization", choices=MEMBER_ROLES),),
    updated="{user.name} is {role} in {above.name}",
    delete=Deletion(
        words="end a person's part in the organization",
        question="End the part of {user.name} in {above.name}, with their roles in it?",
        said="{user.name} is no longer in {above.name}, and has lost the roles in its accounts",
    ),
)
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

COMMANDS: Final = (ORGANIZATIONS, MEMBERS, INVITATIONS)

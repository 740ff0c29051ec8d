"""``entrepot organizations`` and ``members``: yours, and who is in them."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from cloudcore.command_line import (
    Act,
    Cell,
    CommandLine,
    Deletion,
    Invocation,
    Noun,
    Option,
    Record,
)
from cloudcore.identity.commands.people import ORGANIZATIONS_PATH, find_organization, person

MEMBER_ROLES: Final = ("member", "owner", "billing")
_NAME: Final = Option("name", "what people call it", metavar="NAME")


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
    path=ORGANIZATIONS_PATH,
    one="organization",
    many="organizations",
    known_by="an organization of yours, by name or id (the only one, or your account's)",
    find=_find,
    caller=person,
    columns=(
        Cell("NAME", "name"),
        Cell("YOUR ROLE", "role"),
        Cell("PERSONAL", "is_personal"),
        Cell("CREATED", "created_at", "time"),
        Cell("ID", "id", "whole"),
    ),
    quiet="id",
    create=(_NAME._replace(is_argument=True),),
    created="Created {name} ({id}); you own it",
    update=(_NAME,),
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
            options=(Option("id", "as who invited you knows it", metavar="ID", is_argument=True),),
            run=_accept,
        ),
        Act(
            verb="leave",
            words="leave an organization, with your roles in it",
            asks=True,
            run=_leave,
        ),
    ),
)


def _name_of(record: Record) -> str:
    return str(record["user"]["name"])


MEMBERS: Final = Noun(
    noun="members",
    words="who belongs to an organization",
    path="members",
    parent=ORGANIZATIONS,
    is_below_option=True,
    one="member",
    many="members",
    name="user.name",
    within="user",
    metavar="EMAIL",
    known_by="e-mail address, id or CRN",
    is_of_account=False,
    is_lower=True,
    has_show=False,
    caller=person,
    columns=(
        Cell("E-MAIL", "user.name"),
        Cell("ROLE", "role"),
        Cell("SINCE", "created_at", "time"),
    ),
    update=(Option("role", "in the organization", choices=MEMBER_ROLES),),
    updated=lambda run, made: f"{_name_of(made)} is {made['role']} in {run.above.record['name']}",
    delete=Deletion(
        words="end a person's part in the organization",
        question=lambda run, gone: (
            f"End the part of {_name_of(gone)} in {run.above.record['name']}, with their roles?"
        ),
        said=lambda run, gone: (
            f"{_name_of(gone)} is no longer in {run.above.record['name']}, and has lost the roles "
            "in its accounts"
        ),
    ),
)


def add_parsers(commands: CommandLine) -> None:
    """Add ``organizations`` and ``members`` and their commands."""
    commands.add_described(ORGANIZATIONS)
    commands.add_described(MEMBERS)

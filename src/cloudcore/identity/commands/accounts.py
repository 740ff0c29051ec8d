"""``entrepot accounts``: the accounts of your organizations."""

from __future__ import annotations

from typing import Final

from cloudcore.command_failures import Missing
from cloudcore.command_line import Act, Cell, CommandLine, Invocation, Noun, Option
from cloudcore.identity.commands.people import find_organization, person, person_or_program


def _create(run: Invocation) -> bool:
    """Create an account, of the personal organization if the person has no other."""
    document = {"handle": run.values["handle"]}
    if not run.sign_in.is_program:
        named = run.values.get("organization", "")
        try:
            document["organization"] = find_organization(run.client, run.sign_in, named)["id"]
        except Missing:
            if named:
                raise
            me = run.client.call("GET", "/v1/users/me")["user"]
            document["organization"] = me["organization"]["id"]
    made = run.client.create(run.path, document)["account"]
    role = f"crn:iam::{made['id']}:role/admin"
    words = f"Created {made['handle']} ({made['id']}); 'entrepot roles assume {role}' acts in it"
    run.say(words, made)
    return True


ACCOUNTS: Final = Noun(
    noun="accounts",
    words="accounts, in which repositories are",
    path="/v1/accounts",
    one="account",
    many="accounts",
    name="handle",
    caller=person_or_program,
    columns=(
        Cell("HANDLE", "handle"),
        Cell("STATUS", "status"),
        Cell("ORGANIZATION", "organization.name"),
        Cell("CREATED", "created_at", "time"),
        Cell("ID", "id", "whole"),
    ),
    acts=(
        Act(
            verb="create",
            words="create an account, whose role 'admin' you may assume",
            is_of_all=True,
            options=(
                Option(
                    "handle",
                    "its name in image references; fixed, never given again",
                    metavar="HANDLE",
                    is_argument=True,
                ),
                Option("organization", "of yours, by name or id (your only one)", metavar="NAME"),
            ),
            run=_create,
        ),
        Act(
            verb="suspend",
            words="suspend an account: nobody can act in it until it is resumed",
            question="Suspend the account {handle}, so that nobody pulls or pushes there?",
            method="PATCH",
            document={"status": "suspended"},
            answer="account",
            said="{handle} is {status}",
            caller=person,
        ),
        Act(
            verb="resume",
            words="let an account that is suspended work again",
            method="PATCH",
            document={"status": "active"},
            answer="account",
            said="{handle} is {status}",
            caller=person,
        ),
    ),
)


def add_parsers(commands: CommandLine) -> None:
    """Add ``accounts`` and its commands."""
    commands.add_described(ACCOUNTS)

"""``entrepot accounts``: the accounts of your organizations."""

from __future__ import annotations

from typing import Final

from cloudcore.command_failures import Missing
from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Cell, Command, Noun, Option, argument
from cloudcore.identity.commands.options import (
    find_organization,
    person,
    person_or_program,
    status_act,
)


def _create(run: Invocation) -> None:
    """Create an account in the named organization, or else the default or the current one."""
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


ACCOUNTS: Final = Noun(
    noun="accounts",
    words="accounts, in which repositories are",
    name="handle",
    caller=person_or_program,
    columns=("handle", "status", Cell("ORGANIZATION", "organization.name"), "created_at", "id"),
    commands=(
        Command(
            verb="create",
            words="create an account, whose role 'admin' you may assume",
            is_on_list=True,
            options=(
                argument("handle", "its name in image references; fixed, never given again"),
                Option("organization", "of yours, by name or id (your only one)", metavar="NAME"),
            ),
            run=_create,
        ),
        status_act(
            "account",
            "suspend",
            "suspended",
            "suspend an account: nobody can act in it until it is resumed",
            "{handle} is {status}",
        )._replace(
            question="Suspend the account {handle}, so that nobody pulls or pushes there?",
            caller=person,
        ),
        status_act(
            "account",
            "resume",
            "active",
            "let an account that is suspended work again",
            "{handle} is {status}",
        )._replace(caller=person),
    ),
)

COMMANDS: Final = (ACCOUNTS,)

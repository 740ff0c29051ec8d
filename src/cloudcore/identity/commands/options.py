"""Options that several commands share, and clients that act as the person or program.

People act in organizations as themselves, and in accounts through a role. So the commands about
people use the person's own token, even if other commands currently act in a role.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from cloudcore.command_failures import CommandFailure, Missing, Misuse
from cloudcore.commands.client import ApiCalls, SignedIn
from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Command, Option, Record
from cloudcore.resource_names import parse_uuid

ORGANIZATIONS_PATH: Final = "/v1/organizations"


def person(run: Invocation) -> ApiCalls:
    """Return a client that acts as the person who signed in.

    Raise `CommandFailure` if a service account signed in.
    """
    url = run.sign_in.url
    if run.sign_in.is_program:
        raise CommandFailure(
            f"only people may do this, and a service account is signed in to {url}; "
            f"run 'entrepot login {url}' without --access-key-id"
        )
    return run.sign_in.client(in_role=False)


def person_or_program(run: Invocation) -> ApiCalls:
    """Return a client that acts as the person or program that signed in."""
    return run.sign_in.client(in_role=run.sign_in.is_program)


def people(run: Invocation) -> ApiCalls:
    """Return a client whose ``/v1/users`` are the people of the chosen organization.

    For a person, they are the people of the session's current organization, so the session is
    switched if necessary. A service account can only list and show the people of the organization
    that owns its account.

    Raise `CommandFailure` if a service account signed in, and the command changes something.
    """
    if run.sign_in.is_program and run.verb in ("list", "show"):
        return run.sign_in.client(in_role=True)
    client = person(run)
    wanted = find_organization(client, run.sign_in, run.above.written)["id"]
    if client.call("GET", "/v1/users/me")["user"]["organization"]["id"] != wanted:
        client.create(f"{ORGANIZATIONS_PATH}/{wanted}/switch")
    return client


def find_organization(client: ApiCalls, sign_in: SignedIn, written: str) -> Record:
    """Return the organization with a name or id, or the default one if `written` is empty.

    The default is the person's only organization apart from the personal one; if there are several,
    the owner of the account in which other commands act.

    Raise `Missing` if there is none, `Misuse` if there are several candidates.
    """
    rows = list(client.rows(ORGANIZATIONS_PATH, "organizations"))
    if written:
        found = [row for row in rows if written == row["name"] or parse_uuid(written) == row["id"]]
    else:
        found = [row for row in rows if not row["is_personal"]]
        if len(found) > 1 and sign_in.role is not None:
            account = sign_in.claims().acc
            owners = [
                (row["organization"] or {}).get("id")
                for row in client.rows("/v1/accounts", "accounts")
                if row["id"] == account
            ]
            found = [row for row in found if row["id"] in owners] or found
    if len(found) == 1:
        return found[0]
    if not found:
        named = f" {written!r}" if written else ""
        raise Missing(
            f"you are in no organization{named}; 'entrepot organizations list' shows yours, "
            "and an owner of another can invite you: 'entrepot invitations create EMAIL'"
        )
    names = ", ".join(f"{row['name']!r} ({row['id']})" for row in found)
    raise Misuse(f"name one of your organizations: {names}")


DESCRIPTION: Final = Option("description", 'for persons; "" takes it away')
FORCE: Final = Option(
    "force", "even if it takes your own right to give rights", "flag", is_query=True
)
_TEMPLATES: Final = {
    "pull": ("reader", "pull and list"),
    "push": ("pusher", "push, tag, pull, and create by a first push"),
    "admin": ("admin", "do everything with"),
}
"""The ready-made policy of each option, and the rights that it gives."""
GRANTS: Final = tuple(
    Option(
        option,
        f"allow to {words} these repositories, such as web/*; repeatable, or with commas",
        "many",
        metavar="NAMES",
    )
    for option, (_, words) in _TEMPLATES.items()
)
"""Options that give ready-made rights on repositories."""


def status_act(field: str, verb: str, status: str, words: str, said: str) -> Command:
    """Return a command that sets the status of a resource."""
    document = {"status": status}
    return Command(verb, words, method="PATCH", document=document, answer=field, said=said)


class Grant(NamedTuple):
    """A ready-made policy, and the repositories that it is for."""

    template: str
    names: list[str]
    """Names of repositories; a name that ends in ``*`` stands for all names with that prefix."""

    @property
    def words(self) -> str:
        """Return the policy in words, such as ``pusher of web/*``."""
        return f"{self.template} of {', '.join(self.names)}"


def grants_of(values: Mapping[str, Any]) -> Sequence[Grant]:
    """Return the ready-made policies that the options `GRANTS` request."""
    return [
        Grant(template, names)
        for option, (template, _) in _TEMPLATES.items()
        if (names := [each for text in values.get(option, ()) for each in text.split(",")])
    ]

"""``entrepot container-passwords``: named passwords of a person for container clients."""

from __future__ import annotations

from typing import Any, Final

from cloudcore.command_failures import Misuse
from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Cell, Command, Noun, Option, Secret, argument
from cloudcore.identity.commands.options import person

_PASSWORD: Final = Secret(
    "the password, so that it can be piped; the username is 'token'",
    {"registry": "host", "username": "username", "password": "password"},
)


def _create(run: Invocation) -> None:
    """Create a password; log in a container client with it, or show it once."""
    document: dict[str, Any] = {"name": run.values["name"], "role": _role(run)}
    if "duration_seconds" in run.values:
        document["duration_seconds"] = run.values["duration_seconds"]
    made = run.client.create(run.path, document)["container_password"]
    sentence = "Made {name}, which acts as {role.name} of {account.name} until {expires_at}"
    words = run.text(sentence, made)
    if "client" not in run.values:
        run.say_secret(words, made, _PASSWORD)
        return
    run.log_in(run.values["client"], made["username"], made["password"], made["host"])
    run.say(words, {each: made[each] for each in made if each != "password"})


def _role(run: Invocation) -> str:
    """Return the role to use: the named role, the role that commands act in, or the only role.

    Raise `Misuse` if none is named, and the person has no role or several.
    """
    named: str | None = run.values.get("role") or run.sign_in.role
    if named:
        return named
    roles = list(run.client.rows("/v1/users/me/roles", "roles"))
    if len(roles) == 1:
        crn: str = roles[0]["crn"]
        return crn
    if not roles:
        raise Misuse("no role is assigned to you; ask an administrator of the account for one")
    names = ", ".join(f"{each['name']!r} of {each['account']['name']}" for each in roles)
    raise Misuse(f"name one of your roles with --role: {names}")


def _delete(run: Invocation) -> None:
    """Delete passwords; if one of them is not found, delete none."""
    found = [run.find(CONTAINER_PASSWORDS, each) for each in run.values["names"]]
    for each in found:
        run.client.call("DELETE", f"{run.path}/{each['id']}")
        run.say(f"Deleted {each['name']}")


CONTAINER_PASSWORDS: Final = Noun(
    noun="container-passwords",
    words="your named passwords for docker and other clients",
    path="/v1/users/me/container-passwords",
    known_by="name or id",
    caller=person,
    columns=(
        "name",
        Cell("ACCOUNT", "account.name"),
        Cell("ROLE", "role.name"),
        *("last_used_at", "created_at", "expires_at"),
    ),
    commands=(
        Command(
            verb="create",
            words="make a password, which is shown once",
            is_on_list=True,
            options=(
                argument("name", "what it is for, such as laptop"),
                Option(
                    "role",
                    "in which it acts: name, id or CRN (the one that you act in, or your only one)",
                    metavar="ROLE",
                ),
                Option(
                    "duration_seconds",
                    "how long it works, as 8h (as long as the operator allows: 12h unless set)",
                    "span",
                    "expires-in",
                ),
                Option(
                    "client",
                    "log this container client in, and print nothing secret: docker, podman, oras",
                    metavar="PROGRAM",
                ),
            ),
            run=_create,
            secret=_PASSWORD,
        ),
        Command(
            verb="delete",
            words="end passwords; clients get no more tokens by them",
            is_on_list=True,
            question="Delete these passwords?",
            options=(argument("names", "name or id", "texts", metavar="CONTAINER-PASSWORD"),),
            run=_delete,
        ),
    ),
)

COMMANDS: Final = (CONTAINER_PASSWORDS,)

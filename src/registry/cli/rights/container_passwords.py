"""``entrepot container-passwords``: named passwords of a person for container clients."""

from __future__ import annotations

import argparse
import time
from typing import Any, Final

from registry.cli.api import ApiClient, Record
from registry.cli.container_clients import CLIENTS, log_in
from registry.cli.container_passwords import ContainerPassword
from registry.cli.failure import Missing, Misuse
from registry.cli.listing import add_quiet, show_list
from registry.cli.options import Verbs, add_noun, add_verb
from registry.cli.output import Column, column, echo, printable, time_text
from registry.cli.rights.people import open_person
from registry.cli.secret_text import add_quiet_secret, show_secret
from registry.cli.spans import span
from registry.cli.stored_sign_in import StoredSignIn

PATH: Final = "/v1/users/me/container-passwords"
_COLUMNS: Final = (
    column("NAME", "name"),
    Column("ACCOUNT", lambda row: row["account"]["name"]),
    Column("ROLE", lambda row: row["role"]["name"]),
    column("LAST USED", "last_used_at", time_text),
    column("CREATED", "created_at", time_text),
    column("EXPIRES", "expires_at", time_text),
)
_LABELS: Final = {"registry": "host", "username": "username", "password": "password"}


def add_parsers(commands: Verbs) -> None:
    """Add ``container-passwords`` and its commands."""
    verbs = add_noun(
        commands, "container-passwords", "your named passwords for docker and other clients"
    )
    add_quiet(add_verb(verbs, "list", _list, "list your passwords, by name"), "names")
    create = add_verb(verbs, "create", _create, "make a password, which is shown once")
    create.add_argument("name", metavar="NAME", help="what it is for, such as laptop")
    create.add_argument(
        "--role",
        metavar="ROLE",
        help="the role it acts in: name, id or CRN (the one that you act in, or your only one)",
    )
    create.add_argument(
        "--expires-in",
        type=span,
        metavar="SPAN",
        help="how long it works, as 8h (as long as the operator allows, which is 12h unless set)",
    )
    create.add_argument(
        "--client",
        metavar="PROGRAM",
        help=f"log this container client in, and print nothing secret: {', '.join(CLIENTS)}",
    )
    add_quiet_secret(create, "the password, so that it can be piped; the username is 'token'")
    revoke = add_verb(verbs, "revoke", _revoke, "end passwords; clients get no more tokens by them")
    revoke.add_argument("names", metavar="NAME", nargs="+", help="name or id")


def _list(options: argparse.Namespace) -> int:
    rows = open_person(options).rows(PATH, "container_passwords")
    return show_list(options, rows, _COLUMNS, lambda row: str(row["name"]))


def _create(options: argparse.Namespace) -> int:
    client = open_person(options)
    document: dict[str, Any] = {"name": options.name, "role": _role(options, client)}
    if options.expires_in is not None:
        document["duration_seconds"] = int(options.expires_in.total_seconds())
    made: Record = client.create(PATH, document)["container_password"]
    words = (
        f"Made {made['name']}, which acts as {made['role']['name']} of {made['account']['name']} "
        f"until {time_text(made['expires_at'])}"
    )
    if options.client is None:
        show_secret(options, words, made, _LABELS)
        return 0
    host, password = made["host"], made["password"]
    now = time.time()
    log_in(
        client.url, options.client, ContainerPassword(made["username"], password, host, now, now)
    )
    echo(words, options.output, {each: made[each] for each in made if each != "password"})
    return 0


def _role(options: argparse.Namespace, client: ApiClient) -> str:
    """Return the role that is named, or that commands act in, or the person's only one.

    Raises:
        Misuse: there is none, or several.

    """
    credential = StoredSignIn(options).credential
    acting = None if credential is None else credential.role
    named: str | None = options.role or acting
    if named:
        return named
    roles = list(client.rows("/v1/users/me/roles", "roles"))
    if len(roles) == 1:
        crn: str = roles[0]["crn"]
        return crn
    if not roles:
        raise Misuse("no role is assigned to you; ask an administrator of the account for one")
    names = ", ".join(f"{each['name']} of {each['account']['name']}" for each in roles)
    raise Misuse(f"name one of your roles with --role: {printable(names)}")


def _revoke(options: argparse.Namespace) -> int:
    client = open_person(options)
    rows = list(client.rows(PATH, "container_passwords"))
    found = []
    for name in options.names:
        one = next((row for row in rows if name in (row["name"], row["id"])), None)
        if one is None:
            raise Missing(
                f"you have no container password {printable(name)!r}; "
                "'entrepot container-passwords list' shows yours"
            )
        found.append(one)
    for row in found:
        client.call("DELETE", f"{PATH}/{row['id']}")
        echo(f"Revoked {row['name']}", options.output)
    return 0

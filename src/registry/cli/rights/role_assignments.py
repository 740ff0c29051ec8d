"""``entrepot roles assign``, ``unassign``, ``assignments``, ``mine`` and ``assume``."""

from __future__ import annotations

import argparse
import os
from typing import Final

import msgspec

from registry.cli.api import open_client
from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.credentials import changing, credentials_path
from registry.cli.failure import Missing
from registry.cli.listing import add_quiet, show_list
from registry.cli.options import Verbs, add_registry, add_verb
from registry.cli.output import TABLE, Column, column, duration_text, echo, printable, time_text
from registry.cli.rights.force import add_force, forced
from registry.cli.rights.lookup import ROLE, add_named, find, path_of
from registry.cli.rights.people import open_person
from registry.cli.rights.trust import admit, is_trusted
from registry.cli.sign_in import assume_role
from registry.cli.stored_sign_in import StoredSignIn
from registry.cli.transport import Transport

_COLUMNS: Final = (
    Column("E-MAIL", lambda row: row["user"]["name"]),
    column("SINCE", "created_at", time_text),
    Column("BY A GROUP", lambda row: row["identity_provider"] is not None),
    Column("ID", lambda row: row["user"]["id"], is_whole=True),
)
_MY_COLUMNS: Final = (
    column("NAME", "name"),
    Column("ACCOUNT", lambda row: row["account"]["name"]),
    column("LONGEST SESSION", "max_session_seconds", duration_text, is_number=True),
    column("CRN", "crn", is_whole=True),
)


def add_parsers(verbs: Verbs) -> None:
    """Add the commands about the people of roles to those of roles."""
    assign = add_verb(verbs, "assign", _assign, "let a person assume a role")
    add_named(assign, ROLE)
    assign.add_argument("user", metavar="EMAIL", help="e-mail address, id or CRN")
    assign.add_argument(
        "--keep-trust",
        action="store_true",
        help="leave the trust policy alone; by default it is made to admit the person",
    )
    unassign = add_verb(verbs, "unassign", _unassign, "take a role from a person")
    add_named(unassign, ROLE)
    unassign.add_argument("user", metavar="EMAIL", help="e-mail address, id or CRN")
    add_force(unassign)
    add_confirmation(unassign)
    listing = add_verb(verbs, "assignments", _list, "list the people who have a role")
    add_named(listing, ROLE)
    add_quiet(listing, "e-mail addresses")
    mine = add_verb(verbs, "mine", _list_mine, "list the roles that you can assume")
    add_quiet(mine, "CRNs")
    assume = verbs.add_parser(
        "assume",
        help="act in another role from now on",
        description="Act in another role from now on, without signing in again.",
    )
    add_registry(assume)
    either = assume.add_mutually_exclusive_group(required=True)
    either.add_argument("role", metavar="ROLE", nargs="?", help="name, id or CRN")
    either.add_argument("--none", action="store_true", help="act as yourself again")
    assume.set_defaults(run=_assume)


def _assign(options: argparse.Namespace) -> int:
    client = open_client(options)
    role = find(client, ROLE, options.role)
    path = f"{ROLE.path}/{role['id']}"
    made = client.create(f"{path}/assignments", {"user": options.user})["assignment"]
    name, crn = made["user"]["name"], made["user"]["crn"]
    words = f"{name} has the role {role['name']}"
    if not is_trusted(role["trust_policy"], crn):
        if options.keep_trust:
            words += ", but its trust policy does not admit them yet"
        else:
            admit(client, path, role["trust_policy"], crn)
            words += "; its trust policy admits them now"
    echo(words, options.output, made)
    return 0


def _unassign(options: argparse.Namespace) -> int:
    client = open_client(options)
    path = f"{path_of(client, ROLE, options.role)}/assignments"
    written = options.user
    for row in client.rows(path, "assignments"):
        user = row["user"]
        if written in (user["id"], user["crn"]) or written.lower() == user["name"]:
            words = f"Take the role {row['role']['name']} from {user['name']}"
            confirm(options, f"{words}, and end their sessions of it?")
            client.call("DELETE", f"{path}/{user['id']}", query=forced(options))
            echo(f"{user['name']} has the role {row['role']['name']} no more", options.output)
            return 0
    raise Missing(
        f"{printable(written)!r} does not have this role; "
        f"'entrepot roles assignments {options.role}' shows who has it"
    )


def _list(options: argparse.Namespace) -> int:
    client = open_client(options)
    rows = client.rows(f"{path_of(client, ROLE, options.role)}/assignments", "assignments")
    return show_list(options, rows, _COLUMNS, lambda row: str(row["user"]["name"]))


def _list_mine(options: argparse.Namespace) -> int:
    rows = open_person(options).rows("/v1/users/me/roles", "roles")
    return show_list(options, rows, _MY_COLUMNS, lambda row: str(row["crn"]))


def _assume(options: argparse.Namespace) -> int:
    stored = StoredSignIn(options)
    source = stored.tokens(in_role=False).token()  # raises if nobody is signed in
    token = None if options.none else assume_role(Transport(stored.url), source, options.role)
    with changing(credentials_path(os.environ)) as credentials:
        credential = credentials[stored.url]
        credentials[stored.url] = msgspec.structs.replace(
            credential, role=options.role, role_token=token
        )
    echo(
        "Commands act as yourself" if options.none else f"Commands act in the role {options.role}",
        TABLE,
    )
    return 0

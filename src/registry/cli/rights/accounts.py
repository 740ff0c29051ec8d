"""``entrepot accounts``: the accounts of your organizations."""

from __future__ import annotations

import argparse
from typing import Final

from registry.cli.api import ApiClient, Record
from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.failure import Missing
from registry.cli.listing import add_quiet, show_list
from registry.cli.options import Verbs, add_noun, add_verb
from registry.cli.output import Column, column, echo, printable, time_text, write_record
from registry.cli.rights.people import (
    add_organization,
    find_organization,
    open_person,
)
from registry.cli.stored_sign_in import StoredSignIn

PATH: Final = "/v1/accounts"
_COLUMNS: Final = (
    column("HANDLE", "handle"),
    column("STATUS", "status"),
    Column("ORGANIZATION", lambda row: (row["organization"] or {}).get("name")),
    column("CREATED", "created_at", time_text),
    column("ID", "id", is_whole=True),
)


def add_parsers(commands: Verbs) -> None:
    """Add ``accounts`` and its commands."""
    verbs = add_noun(commands, "accounts", "accounts, in which repositories are")
    listing = add_verb(verbs, "list", _list, "list the accounts of your organizations, by handle")
    add_quiet(listing, "handles")
    _add_named(add_verb(verbs, "show", _show, "show an account"))
    create = add_verb(
        verbs, "create", _create, "create an account, whose role 'admin' you may assume"
    )
    create.add_argument(
        "handle", metavar="HANDLE", help="its name in image references; fixed, never given again"
    )
    add_organization(create)
    suspend = add_verb(
        verbs, "suspend", _suspend, "suspend an account: nobody can act in it until it is resumed"
    )
    _add_named(suspend)
    add_confirmation(suspend)
    _add_named(add_verb(verbs, "resume", _resume, "let an account that is suspended work again"))


def _add_named(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("account", metavar="ACCOUNT", help="handle, id or CRN")


def _open(options: argparse.Namespace) -> ApiClient:
    """Return a client that acts as the person; or as the program that is signed in."""
    stored = StoredSignIn(options)
    return stored.client(in_role=stored.is_program)


def _find(client: ApiClient, written: str) -> Record:
    for row in client.rows(PATH, "accounts"):
        if written in (row["handle"], row["id"], row["crn"]):
            return row
    raise Missing(
        f"you have no account {printable(written)!r}; 'entrepot accounts list' shows yours"
    )


def _list(options: argparse.Namespace) -> int:
    rows = _open(options).rows(PATH, "accounts")
    return show_list(options, rows, _COLUMNS, lambda row: str(row["handle"]))


def _show(options: argparse.Namespace) -> int:
    write_record(_find(_open(options), options.account), options.output)
    return 0


def _create(options: argparse.Namespace) -> int:
    client = _open(options)
    document = {"handle": options.handle}
    if not StoredSignIn(options).is_program:
        document["organization"] = _organization(client, options)
    made = client.create(PATH, document)["account"]
    role = f"crn:iam::{made['id']}:role/admin"
    words = f"Created {made['handle']} ({made['id']}); 'entrepot roles assume {role}' acts in it"
    echo(words, options.output, made)
    return 0


def _organization(client: ApiClient, options: argparse.Namespace) -> str:
    """Return the id of the organization to own the account: the personal one if there is no other.

    Raises:
        Misuse: several could be meant.

    """
    try:
        found: str = find_organization(client, options)["id"]
    except Missing:
        if options.organization is not None:
            raise
        found = client.call("GET", "/v1/users/me")["user"]["organization"]["id"]
    return found


def _suspend(options: argparse.Namespace) -> int:
    client = open_person(options)
    account = _find(client, options.account)
    confirm(
        options, f"Suspend the account {account['handle']}, so that nobody pulls or pushes there?"
    )
    return _set_status(options, client, account, "suspended")


def _resume(options: argparse.Namespace) -> int:
    client = open_person(options)
    return _set_status(options, client, _find(client, options.account), "active")


def _set_status(
    options: argparse.Namespace, client: ApiClient, account: Record, status: str
) -> int:
    changed = client.call("PATCH", f"{PATH}/{account['id']}", {"status": status})["account"]
    echo(f"{changed['handle']} is {changed['status']}", options.output, changed)
    return 0

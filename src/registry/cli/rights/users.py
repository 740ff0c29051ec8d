"""``entrepot users``; the modules `passwords` and `invitations` add more commands to it."""

from __future__ import annotations

import argparse
from typing import Final

from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.failure import CommandFailure
from registry.cli.listing import add_quiet, show_list
from registry.cli.options import Run, Verbs, add_noun, add_verb
from registry.cli.output import column, echo, time_text, write_record
from registry.cli.rights import invitations, passwords
from registry.cli.rights.lookup import USER, add_named, find
from registry.cli.rights.people import (
    add_organization,
    find_member,
    find_organization,
    members_path,
    open_people,
    open_person,
)
from registry.cli.secret_text import PASSWORD_LABELS, add_quiet_secret, show_secret
from registry.cli.transport import RequestRefused

_COLUMNS: Final = (
    column("E-MAIL", "email"),
    column("STATUS", "status"),
    column("MUST CHANGE PASSWORD", "must_change_password"),
    column("CREATED", "created_at", time_text),
    column("ID", "id", is_whole=True),
)


def add_parsers(commands: Verbs) -> None:
    """Add ``users`` and its commands."""
    verbs = add_noun(commands, "users", "people of an organization")
    listing = add_verb(verbs, "list", _list, "list the people of the organization")
    add_organization(listing)
    add_quiet(listing, "e-mail addresses")
    show = add_verb(verbs, "show", _show, "show a person")
    add_named(show, USER)
    add_organization(show)
    create = add_verb(
        verbs, "create", _create, "add a person, with a password for the first sign-in"
    )
    create.add_argument("email", metavar="EMAIL", help="new in the organization")
    add_organization(create)
    add_quiet_secret(create, "the password, so that it can be piped")
    invitations.add_parsers(verbs)
    _add_change(verbs, "suspend", _suspend, "lock a person out; 'users resume' lets them in")
    _add_change(verbs, "resume", _resume, "let a suspended person in again")
    remove = _add_change(verbs, "remove", _remove, "end a person's part in the organization")
    add_confirmation(remove)
    delete = _add_change(verbs, "delete", _delete, "delete a person of no other organization")
    add_confirmation(delete)
    passwords.add_parsers(verbs)


def _add_change(verbs: Verbs, verb: str, run: Run, words: str) -> argparse.ArgumentParser:
    parser = add_verb(verbs, verb, run, words)
    add_named(parser, USER)
    add_organization(parser)
    return parser


def _list(options: argparse.Namespace) -> int:
    rows = open_people(options).rows(USER.path, USER.fields)
    return show_list(options, rows, _COLUMNS, lambda row: str(row["email"]))


def _show(options: argparse.Namespace) -> int:
    write_record(find(open_people(options), USER, options.user), options.output)
    return 0


def _create(options: argparse.Namespace) -> int:
    client = open_person(options)
    organization = find_organization(client, options)
    document = {"email": options.email, "organization": organization["id"]}
    made = client.create(USER.path, document)["user"]
    words = (
        f"Added {made['email']} to {organization['name']}; 'entrepot roles assign ROLE "
        f"{made['email']}' gives them rights"
    )
    show_secret(options, words, made, PASSWORD_LABELS)
    return 0


def _suspend(options: argparse.Namespace) -> int:
    return _set_status(options, "suspended", "is locked out")


def _resume(options: argparse.Namespace) -> int:
    return _set_status(options, "active", "may sign in again")


def _set_status(options: argparse.Namespace, status: str, words: str) -> int:
    client = open_people(options, needs_person=True)
    user = find(client, USER, options.user)
    changed = client.call("PATCH", f"{USER.path}/{user['id']}", {"status": status})["user"]
    echo(f"{changed['email']} {words}", options.output, changed)
    return 0


def _remove(options: argparse.Namespace) -> int:
    client = open_person(options)
    organization = find_organization(client, options)
    member = find_member(client, organization, options.user)
    name = member["user"]["name"]
    confirm(options, f"End the part of {name} in {organization['name']}, with their roles in it?")
    client.call("DELETE", f"{members_path(organization)}/{member['user']['id']}")
    words = f"{name} is no longer in {organization['name']}, and has lost the roles in its accounts"
    echo(words, options.output)
    return 0


def _delete(options: argparse.Namespace) -> int:
    client = open_people(options, needs_person=True)
    user = find(client, USER, options.user)
    confirm(options, f"Delete {user['email']}, with their personal organization?")
    try:
        client.call("DELETE", f"{USER.path}/{user['id']}")
    except RequestRefused as error:
        if error.code != "CONFLICT":
            raise
        raise CommandFailure(
            f"{error}; 'entrepot users remove {user['email']}' ends their part in yours"
        ) from None
    echo(f"Deleted {user['email']}", options.output)
    return 0

"""``entrepot organizations``: yours, their members, and joining and leaving one."""

from __future__ import annotations

import argparse
from typing import Final
from urllib.parse import quote

from registry.cli.api import ApiClient, Record
from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.listing import add_quiet, show_list
from registry.cli.options import Run, Verbs, add_noun, add_verb
from registry.cli.output import Column, column, echo, time_text, write_record
from registry.cli.rights.invitations import MEMBER_ROLES
from registry.cli.rights.people import (
    ORGANIZATIONS,
    find_member,
    find_organization,
    members_path,
    open_person,
)
from registry.cli.secret_text import read_secret

_COLUMNS: Final = (
    column("NAME", "name"),
    column("YOUR ROLE", "role"),
    column("PERSONAL", "is_personal"),
    column("CREATED", "created_at", time_text),
    column("ID", "id", is_whole=True),
)
_MEMBER_COLUMNS: Final = (
    Column("E-MAIL", lambda row: row["user"]["name"]),
    column("ROLE", "role"),
    column("SINCE", "created_at", time_text),
)


def add_parsers(commands: Verbs) -> None:
    """Add ``organizations`` and its commands."""
    verbs = add_noun(commands, "organizations", "organizations that you belong to")
    add_quiet(add_verb(verbs, "list", _list, "list your organizations, the oldest first"), "ids")
    _add(verbs, "show", _show, "show an organization")
    create = add_verb(verbs, "create", _create, "create an organization, which you own")
    create.add_argument("name", metavar="NAME")
    rename = _add(verbs, "rename", _rename, "give an organization another name", is_needed=True)
    rename.add_argument("name", metavar="NAME", help="the new one")
    deletion = _add(
        verbs, "delete", _delete, "delete an organization without accounts", is_needed=True
    )
    add_confirmation(deletion)
    members = _add(verbs, "members", _list_members, "list the members")
    add_quiet(members, "e-mail addresses")
    set_role = add_verb(verbs, "set-role", _set_role, "change a member's role")
    set_role.add_argument("user", metavar="EMAIL", help="e-mail address, id or CRN")
    set_role.add_argument("role", choices=MEMBER_ROLES, help="in the organization")
    set_role.add_argument("--organization", metavar="NAME", help="by name or id (your only one)")
    accept = add_verb(verbs, "accept", _accept, "join an organization by an invitation's code")
    accept.add_argument("organization", metavar="ID", help="as who invited you knows it")
    leave = _add(verbs, "leave", _leave, "leave an organization, with your roles in it")
    add_confirmation(leave)


def _add(
    verbs: Verbs, verb: str, run: Run, words: str, *, is_needed: bool = False
) -> argparse.ArgumentParser:
    parser = add_verb(verbs, verb, run, words)
    parser.add_argument(
        "organization",
        metavar="ORGANIZATION",
        nargs=None if is_needed else "?",
        help=f"its name or id{'' if is_needed else ' (your only one)'}",
    )
    return parser


def _find(options: argparse.Namespace) -> tuple[ApiClient, Record, str]:
    """Return a client, the organization that the command line names, and its path."""
    client = open_person(options)
    organization = find_organization(client, options)
    return client, organization, f"{ORGANIZATIONS}/{organization['id']}"


def _list(options: argparse.Namespace) -> int:
    rows = open_person(options).rows(ORGANIZATIONS, "organizations")
    return show_list(options, rows, _COLUMNS, lambda row: str(row["id"]))


def _show(options: argparse.Namespace) -> int:
    write_record(_find(options)[1], options.output)
    return 0


def _create(options: argparse.Namespace) -> int:
    made = open_person(options).create(ORGANIZATIONS, {"name": options.name})["organization"]
    echo(f"Created {made['name']} ({made['id']}); you own it", options.output, made)
    return 0


def _rename(options: argparse.Namespace) -> int:
    client, before, path = _find(options)
    changed = client.call("PATCH", path, {"name": options.name})["organization"]
    echo(f"{before['name']} is called {changed['name']} now", options.output, changed)
    return 0


def _delete(options: argparse.Namespace) -> int:
    client, organization, path = _find(options)
    confirm(options, f"Delete the organization {organization['name']}?")
    client.call("DELETE", path)
    echo(f"Deleted the organization {organization['name']}", options.output)
    return 0


def _list_members(options: argparse.Namespace) -> int:
    client, organization, _ = _find(options)
    rows = client.rows(members_path(organization), "members")
    return show_list(options, rows, _MEMBER_COLUMNS, lambda row: str(row["user"]["name"]))


def _set_role(options: argparse.Namespace) -> int:
    client, organization, _ = _find(options)
    user = find_member(client, organization, options.user)["user"]
    path = f"{members_path(organization)}/{user['id']}"
    changed = client.call("PATCH", path, {"role": options.role})["member"]
    words = f"{user['name']} is {changed['role']} in {organization['name']}"
    echo(words, options.output, changed)
    return 0


def _accept(options: argparse.Namespace) -> int:
    client = open_person(options)
    code = read_secret("Code: ", "code")
    path = f"{ORGANIZATIONS}/{quote(options.organization, safe='')}/accept"
    joined = client.create(path, {"code": code})["organization"]
    echo(f"You are {joined['role']} in {joined['name']} now", options.output, joined)
    return 0


def _leave(options: argparse.Namespace) -> int:
    client, organization, _ = _find(options)
    myself = client.call("GET", "/v1/users/me")["user"]["id"]
    confirm(options, f"Leave {organization['name']}, and lose your roles in its accounts?")
    client.call("DELETE", f"{members_path(organization)}/{myself}")
    echo(f"You are no longer in {organization['name']}", options.output)
    return 0

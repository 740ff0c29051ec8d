"""``entrepot roles assign-group``, ``unassign-group`` and ``groups``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import NamedTuple

from cloudcore.uuids import parse_uuid
from registry.cli.api import ApiClient, Record, open_client
from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.failure import CommandFailure, Missing, Misuse
from registry.cli.listing import add_quiet, show_list
from registry.cli.options import Verbs, add_verb
from registry.cli.output import TABLE, Column, column, echo, printable, time_text
from registry.cli.rights.force import add_force, forced
from registry.cli.rights.lookup import ROLE, Kind, add_named, find
from registry.cli.rights.people import open_person, providers_of
from registry.cli.rights.trust import admit, is_trusted


class _Provider(NamedTuple):
    id: str
    crn: str


def add_parsers(verbs: Verbs) -> None:
    """Add the commands about the groups of roles to those of roles."""
    assign = add_verb(
        verbs, "assign-group", _assign, "give a role to a group of an identity provider"
    )
    _add_group(assign)
    assign.add_argument(
        "--keep-trust",
        action="store_true",
        help="leave the trust policy alone; by default it is made to admit the provider's people",
    )
    unassign = add_verb(verbs, "unassign-group", _unassign, "take a role from a group")
    _add_group(unassign)
    add_force(unassign)
    add_confirmation(unassign)
    listing = add_verb(verbs, "groups", _list, "list the groups that have a role")
    add_named(listing, ROLE)
    add_quiet(listing, "groups")


def _add_group(parser: argparse.ArgumentParser) -> None:
    add_named(parser, ROLE)
    parser.add_argument("group", metavar="GROUP", help="as the provider's claim names it")
    parser.add_argument(
        "--identity-provider",
        metavar="IDENTITY-PROVIDER",
        help="name, id or CRN (the only one); for its name you must own the organization",
    )


def _assign(options: argparse.Namespace) -> int:
    client = open_client(options)
    role = find(client, ROLE, options.role)
    provider = _find_provider(client, options, role)
    path = f"{ROLE.path}/{role['id']}"
    document = {"identity_provider": provider.id, "group": options.group}
    made = client.create(f"{path}/group-assignments", document)["group_assignment"]
    words = f"People of {made['group']} have the role {role['name']} from their next sign-in on"
    if not is_trusted(role["trust_policy"], provider.crn):
        if options.keep_trust:
            words += ", but its trust policy does not admit them yet"
        else:
            admit(client, path, role["trust_policy"], provider.crn)
            words += "; its trust policy admits them now"
    echo(words, options.output, made)
    return 0


def _unassign(options: argparse.Namespace) -> int:
    client = open_client(options)
    role = find(client, ROLE, options.role)
    path = f"{ROLE.path}/{role['id']}/group-assignments"
    rows = [
        row
        for row in client.rows(path, "group_assignments")
        if options.group in (row["group"], row["id"])
    ]
    if options.identity_provider is not None:
        provider = _find_provider(client, options, role)
        rows = [row for row in rows if row["identity_provider"] == provider.id]
    if not rows:
        raise Missing(
            f"the group {printable(options.group)!r} does not have this role; "
            f"'entrepot roles groups {options.role}' shows those that have it"
        )
    if len(rows) > 1:
        ids = ", ".join(row["identity_provider"] for row in rows)
        raise Misuse(f"groups of several providers are called so; name one: {ids}")
    confirm(options, f"Take the role {role['name']} from the group {rows[0]['group']}?")
    client.call("DELETE", f"{path}/{rows[0]['id']}", query=forced(options))
    echo(f"The group {rows[0]['group']} has the role {role['name']} no more", options.output)
    return 0


def _list(options: argparse.Namespace) -> int:
    client = open_client(options)
    role = find(client, ROLE, options.role)
    rows = client.rows(f"{ROLE.path}/{role['id']}/group-assignments", "group_assignments")
    is_table = options.output == TABLE and not options.quiet
    names = _provider_names(client, options, role) if is_table else {}
    columns = (
        column("GROUP", "group"),
        Column(
            "IDENTITY PROVIDER",
            lambda row: names.get(row["identity_provider"], row["identity_provider"]),
        ),
        column("SINCE", "created_at", time_text),
    )
    return show_list(options, rows, columns, lambda row: str(row["group"]))


def _find_provider(client: ApiClient, options: argparse.Namespace, role: Record) -> _Provider:
    """Return the provider that the command line names, or the organization's only one.

    Raises:
        Missing: there is none.
        Misuse: none is named, and there are several.

    """
    written: str | None = options.identity_provider
    if written is not None and written.startswith("crn:"):
        return _Provider(written.rpartition("/")[2], written)
    organization_id = _owner_of(client, role)
    if written is not None and (known := parse_uuid(written)) is not None:
        return _Provider(known, f"crn:iam::{organization_id}:identity-provider/{known}")
    kind, person = providers_of(organization_id), open_person(options)
    if written is not None:
        found = find(person, kind, written)
        return _Provider(found["id"], found["crn"])
    rows = list(person.rows(kind.path, kind.fields))
    if not rows:
        raise Missing(
            "there is no identity provider; 'entrepot identity-providers create' adds one"
        )
    if len(rows) > 1:
        names = ", ".join(row["name"] for row in rows)
        raise Misuse(f"name one of the identity providers with --identity-provider: {names}")
    return _Provider(rows[0]["id"], rows[0]["crn"])


def _owner_of(client: ApiClient, role: Record) -> str:
    """Return the id of the organization that owns a role's account.

    Raises:
        Missing: no organization owns it.

    """
    account_id = role["crn"].split(":")[3]
    owner = client.call("GET", f"/v1/accounts/{account_id}")["account"]["organization"]
    if owner is None:
        raise Missing("no organization owns this account, so it has no identity provider")
    organization_id: str = owner["id"]
    return organization_id


def _provider_names(
    client: ApiClient, options: argparse.Namespace, role: Record
) -> Mapping[str, str]:
    """Return the names of the organization's providers by id, or none unless the caller may."""
    try:
        kind: Kind = providers_of(_owner_of(client, role))
        rows = list(open_person(options).rows(kind.path, kind.fields))
    except CommandFailure:
        return {}
    return {row["id"]: row["name"] for row in rows}

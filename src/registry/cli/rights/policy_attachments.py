"""``entrepot policies attach``, ``detach`` and ``attachments``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final

from registry.cli.api import ApiClient, Query, Record, open_client
from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.failure import Missing
from registry.cli.options import Verbs, add_verb
from registry.cli.output import Column, column, echo, printable, time_text, write_records
from registry.cli.rights.force import add_force, forced
from registry.cli.rights.lookup import POLICY, ROLE, SERVICE_ACCOUNT, add_named, find, path_of


def _target(row: Mapping[str, Any]) -> Record:
    """Return the reference to the service account or role of an attachment."""
    target: Record = row["service_account"] or row["role"]
    return target


_COLUMNS: Final = (
    Column("ATTACHED TO", lambda row: _target(row)["name"]),
    Column("KIND", lambda row: "role" if row["role"] else "service account"),
    column("SINCE", "created_at", time_text),
)


def add_parsers(verbs: Verbs) -> None:
    """Add the commands about attachments to those of policies."""
    attaching = add_verb(verbs, "attach", _attach, "give a service account or role a policy")
    _add_target(attaching)
    add_force(attaching)
    detaching = add_verb(verbs, "detach", _detach, "take a policy from a service account or role")
    _add_target(detaching)
    add_force(detaching)
    add_confirmation(detaching)
    listing = add_verb(verbs, "attachments", _list, "list what a policy is attached to")
    add_named(listing, POLICY)


def _add_target(parser: argparse.ArgumentParser) -> None:
    add_named(parser, POLICY)
    either = parser.add_mutually_exclusive_group(required=True)
    either.add_argument("--service-account", metavar="SERVICE-ACCOUNT", help="by name, id or CRN")
    either.add_argument("--role", metavar="ROLE", help="by name, id or CRN")


def attach(
    client: ApiClient, policy: str, field: str, reference: str, query: Query | None = None
) -> Record:
    """Attach the policy at a path; `field` is ``role`` or ``service_account``."""
    made: Record = client.create(f"{policy}/attachments", {field: reference}, query)["attachment"]
    return made


def _attach(options: argparse.Namespace) -> int:
    client = open_client(options)
    policy = find(client, POLICY, options.policy)
    field = "role" if options.role else "service_account"
    path = f"{POLICY.path}/{policy['id']}"
    target = options.role or options.service_account
    made = attach(client, path, field, target, forced(options))
    echo(f"{_target(made)['name']} has the policy {policy['name']}", options.output, made)
    return 0


def _detach(options: argparse.Namespace) -> int:
    client = open_client(options)
    path = f"{path_of(client, POLICY, options.policy)}/attachments"
    kind = ROLE if options.role else SERVICE_ACCOUNT
    target = find(client, kind, options.role or options.service_account)
    for row in client.rows(path, "attachments"):
        if _target(row)["id"] == target["id"]:
            name = row["policy"]["name"]
            confirm(options, f"Take the policy {name} from {target['name']}, and its rights?")
            client.call("DELETE", f"{path}/{row['id']}", query=forced(options))
            words = f"{target['name']} has the policy {row['policy']['name']} no more"
            echo(words, options.output)
            return 0
    raise Missing(
        f"{printable(target['name'])} does not have this policy; "
        f"'entrepot policies attachments {options.policy}' shows what has it"
    )


def _list(options: argparse.Namespace) -> int:
    client = open_client(options)
    path = f"{path_of(client, POLICY, options.policy)}/attachments"
    write_records(client.rows(path, "attachments"), _COLUMNS, options.output)
    return 0

"""``entrepot service-accounts``: the programs of an account, such as CI."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

from registry.cli.api import open_client
from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.failure import Misuse
from registry.cli.listing import add_quiet, show_list
from registry.cli.options import Verbs, add_noun, add_verb
from registry.cli.output import column, echo, time_text, write_record
from registry.cli.rights.force import add_force, forced
from registry.cli.rights.grants import Grant, add_grants, grant_words, grants_of
from registry.cli.rights.lookup import SERVICE_ACCOUNT, add_named, find
from registry.cli.secret_text import KEY_LABELS, add_quiet_secret, show_secret
from registry.cli.spans import span, time_after

_COLUMNS: Final = (
    column("NAME", "name"),
    column("STATUS", "status"),
    column("DESCRIPTION", "description"),
    column("LAST USED", "last_used_at", time_text),
    column("CREATED", "created_at", time_text),
)


def add_parsers(commands: Verbs) -> None:
    """Add ``service-accounts`` and its commands."""
    verbs = add_noun(commands, "service-accounts", "programs of the account, such as CI")
    listing = add_verb(verbs, "list", _list, "list service accounts by name")
    add_quiet(listing, "names")
    add_named(add_verb(verbs, "show", _show, "show a service account"), SERVICE_ACCOUNT)
    create = add_verb(verbs, "create", _create, "create a service account")
    create.add_argument("name", metavar="NAME", help="in lower case, such as ci")
    create.add_argument("--description", metavar="TEXT", default="", help="for persons")
    add_grants(create)
    key = create.add_mutually_exclusive_group()
    key.add_argument("--key", action="store_true", help="with an access key (so if it has rights)")
    key.add_argument("--no-key", action="store_true", help="without an access key")
    create.add_argument(
        "--expires-in", type=span, metavar="SPAN", help="how long the key works, as 90d (for ever)"
    )
    add_quiet_secret(create, "the secret of the key, so that it can be piped")
    update = add_verb(verbs, "update", _update, "change a service account; its name stays")
    add_named(update, SERVICE_ACCOUNT)
    update.add_argument("--description", metavar="TEXT", help='for persons; "" takes it away')
    update.add_argument(
        "--status",
        choices=("active", "suspended"),
        help="while it is suspended, its keys and tokens do not work",
    )
    add_force(update)
    deletion = add_verb(verbs, "delete", _delete, "delete a service account with its keys")
    add_named(deletion, SERVICE_ACCOUNT)
    add_force(deletion)
    add_confirmation(deletion)


def _list(options: argparse.Namespace) -> int:
    rows = open_client(options).rows(SERVICE_ACCOUNT.path, SERVICE_ACCOUNT.fields)
    return show_list(options, rows, _COLUMNS, lambda row: str(row["name"]))


def _show(options: argparse.Namespace) -> int:
    found = find(open_client(options), SERVICE_ACCOUNT, options.service_account)
    write_record(found, options.output)
    return 0


def _create(options: argparse.Namespace) -> int:
    grants = grants_of(options)
    document: dict[str, Any] = {"name": options.name, "description": options.description}
    document["grants"] = [each._asdict() for each in grants]
    if (options.key or options.expires_in or grants) and not options.no_key:
        until = None if options.expires_in is None else time_after(options.expires_in)
        document["access_key"] = {"expires_at": until}
    client = open_client(options)
    answer = dict(client.create(SERVICE_ACCOUNT.path, document))
    name, key = answer["service_account"]["name"], answer.get("access_key")
    may = f", {grant_words(grants)}" if grants else ", which may do nothing yet"
    if key is None:
        echo(f"Created {name}{may}: {_advice(name, grants)}", options.output, answer)
        return 0
    login = f"'entrepot login {client.url} --access-key-id {key['access_key_id']}'"
    words = f"Created {name}{may}; it signs in by {login}, which reads the secret"
    show_secret(options, words, key, KEY_LABELS, answer)
    return 0


def _advice(name: str, grants: Sequence[Grant]) -> str:
    """Return what a service account without a key needs next."""
    key = f"'entrepot access-keys create {name}' gives it a key"
    if grants:
        return key
    return f"'entrepot policies attach POLICY --service-account {name}' gives it rights, {key}"


def _update(options: argparse.Namespace) -> int:
    given: dict[str, Any] = {"description": options.description, "status": options.status}
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes:
        raise Misuse("say what is to change: --description or --status")
    client = open_client(options)
    found = find(client, SERVICE_ACCOUNT, options.service_account)
    path = f"{SERVICE_ACCOUNT.path}/{found['id']}"
    changed = client.call("PATCH", path, changes, forced(options))["service_account"]
    echo(f"Changed {changed['name']}; it is {changed['status']}", options.output, changed)
    return 0


def _delete(options: argparse.Namespace) -> int:
    client = open_client(options)
    found = find(client, SERVICE_ACCOUNT, options.service_account)
    confirm(options, f"Delete the service account {found['name']} with its access keys?")
    client.call("DELETE", f"{SERVICE_ACCOUNT.path}/{found['id']}", query=forced(options))
    echo(f"Deleted {found['name']}; its keys and tokens do not work any more", options.output)
    return 0

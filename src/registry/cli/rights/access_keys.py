"""``entrepot access-keys``: the key pairs by which service accounts sign in."""

from __future__ import annotations

import argparse
from typing import Final

from registry.cli.api import ApiClient, Record, open_client
from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.failure import Missing, Misuse
from registry.cli.listing import add_quiet, show_list
from registry.cli.options import Verbs, add_noun, add_verb
from registry.cli.output import column, echo, printable, time_text
from registry.cli.rights.lookup import SERVICE_ACCOUNT, add_named, path_of
from registry.cli.rights.secret_text import add_quiet_secret, show_secret

LABELS: Final = {"access key id": "access_key_id", "secret access key": "secret_access_key"}
_COLUMNS: Final = (
    column("ACCESS KEY ID", "access_key_id", is_whole=True),
    column("STATUS", "status"),
    column("LAST USED", "last_used_at", time_text),
    column("CREATED", "created_at", time_text),
)


def add_parsers(commands: Verbs) -> None:
    """Add ``access-keys`` and its commands."""
    verbs = add_noun(commands, "access-keys", "key pairs by which service accounts sign in")
    listing = add_verb(verbs, "list", _list, "list the keys of a service account, oldest first")
    add_named(listing, SERVICE_ACCOUNT)
    add_quiet(listing, "access key ids")
    create = add_verb(verbs, "create", _create, "create a key; its secret is shown this once")
    add_named(create, SERVICE_ACCOUNT)
    add_quiet_secret(create, "the secret, so that it can be piped")
    rotate = add_verb(
        verbs, "rotate", _rotate, "create a key, and deactivate the one that it replaces"
    )
    add_named(rotate, SERVICE_ACCOUNT)
    _add_key(rotate, is_optional=True)
    rotate.add_argument("--keep", action="store_true", help="let the old key work on for now")
    add_quiet_secret(rotate, "the secret, so that it can be piped")
    update = add_verb(verbs, "update", _update, "activate or deactivate a key")
    add_named(update, SERVICE_ACCOUNT)
    _add_key(update)
    update.add_argument("--status", choices=("active", "inactive"), required=True)
    deletion = add_verb(verbs, "delete", _delete, "delete a key, with the logins made by it")
    add_named(deletion, SERVICE_ACCOUNT)
    _add_key(deletion)
    add_confirmation(deletion)


def _add_key(parser: argparse.ArgumentParser, *, is_optional: bool = False) -> None:
    only = "; needed only if there are several" if is_optional else ""
    parser.add_argument(
        "access_key",
        metavar="ACCESS-KEY",
        nargs="?" if is_optional else None,
        help=f"as 'access-keys list' shows it{only}",
    )


def _keys(client: ApiClient, options: argparse.Namespace) -> str:
    """Return the path of the keys of the service account that the command line names."""
    return f"{path_of(client, SERVICE_ACCOUNT, options.service_account)}/access-keys"


def _find_key(client: ApiClient, path: str, options: argparse.Namespace) -> Record:
    """Return a key by its access key id or the id of its record; without one, the only active key.

    Raises:
        Missing: there is no such key.
        Misuse: none is named, and there is not exactly one that is active.

    """
    written, owner = options.access_key, options.service_account
    rows = list(client.rows(path, "access_keys"))
    if written is None:
        rows = [row for row in rows if row["status"] == "active"]
        if len(rows) != 1:
            names = ", ".join(row["access_key_id"] for row in rows)
            raise Misuse(f"{owner} has {len(rows)} active keys; name the one: {names or 'none'}")
        return rows[0]
    for row in rows:
        if written in (row["access_key_id"], row["id"]):
            return row
    raise Missing(
        f"{owner} has no access key {printable(written)!r}; "
        f"'entrepot access-keys list {owner}' shows those it has"
    )


def _list(options: argparse.Namespace) -> int:
    client = open_client(options)
    rows = client.rows(_keys(client, options), "access_keys")
    return show_list(options, rows, _COLUMNS, lambda row: str(row["access_key_id"]))


def _create(options: argparse.Namespace) -> int:
    client = open_client(options)
    made = client.create(_keys(client, options), {})["access_key"]
    show_secret(options, f"Created a key of {made['service_account']['name']}", made, LABELS)
    return 0


def _rotate(options: argparse.Namespace) -> int:
    client = open_client(options)
    path = _keys(client, options)
    old = _find_key(client, path, options)
    made = client.create(path, {})["access_key"]
    if options.keep:
        rest = f"{old['access_key_id']} works on; 'entrepot access-keys delete' ends it"
    else:
        client.call("PATCH", f"{path}/{old['id']}", {"status": "inactive"})
        rest = f"{old['access_key_id']} works no more; 'entrepot access-keys delete' removes it"
    owner = made["service_account"]["name"]
    show_secret(options, f"Created a key of {owner}; {rest}", made, LABELS)
    return 0


def _update(options: argparse.Namespace) -> int:
    client = open_client(options)
    path = _keys(client, options)
    key = _find_key(client, path, options)
    changes = {"status": options.status}
    changed = client.call("PATCH", f"{path}/{key['id']}", changes)["access_key"]
    echo(f"{changed['access_key_id']} is {changed['status']}", options.output, changed)
    return 0


def _delete(options: argparse.Namespace) -> int:
    client = open_client(options)
    path = _keys(client, options)
    key = _find_key(client, path, options)
    name = key["access_key_id"]
    confirm(options, f"Delete the access key {name} of {options.service_account}?")
    client.call("DELETE", f"{path}/{key['id']}")
    echo(f"Deleted the access key {name}", options.output)
    return 0

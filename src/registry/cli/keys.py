"""``entrepot keys``: the KMS keys of the account."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

from registry.cli import key_usage
from registry.cli.api import Record, open_client
from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.failure import Misuse
from registry.cli.listing import add_quiet, show_list
from registry.cli.options import Verbs, add_noun, add_verb, repeatable
from registry.cli.output import TABLE, column, echo, printable, time_text, write_record
from registry.cli.rights.lookup import KEY, add_named, find, path_of
from registry.cli.tag_pairs import pairs

_SPECS: Final = ("aes-256", "hmac-256", "rsa-2048", "rsa-4096", "ecdsa-p256")
_USAGES: Final = ("encrypt_decrypt", "generate_verify_mac", "sign_verify")
_STATES: Final = ("enabled", "disabled", "pending_deletion", "deleted")
_DEFAULT_DAYS: Final = 30
_COLUMNS: Final = (
    column("NAME", "name"),
    column("STATE", "state"),
    column("SPEC", "key_spec"),
    column("VERSION", "current_version", is_number=True),
    column("ORIGIN", "origin"),
    column("DELETED AT", "deletion_at", time_text),
    column("CREATED", "created_at", time_text),
    column("ID", "id", is_whole=True),
)


def add_parsers(commands: Verbs) -> None:
    """Add ``keys`` and its commands."""
    verbs = add_noun(commands, "keys", "keys that encrypt what the account stores")
    listing = add_verb(verbs, "list", _list, "list the account's keys, oldest first")
    listing.add_argument(
        "--state", choices=_STATES, help="only keys in this state (all but deleted)"
    )
    add_quiet(listing, "names, or the ids of deleted keys")
    add_named(add_verb(verbs, "show", _show, "show a key"), KEY)
    create = add_verb(verbs, "create", _create, "create a key; its material stays in the registry")
    create.add_argument("name", metavar="NAME", help="1 to 63 of a-z 0-9 . _ -; fixed")
    create.add_argument(
        "--key-spec", choices=_SPECS, help="what it is made of (aes-256, which seals blobs)"
    )
    create.add_argument("--key-usage", choices=_USAGES, help="what it is for (as its spec says)")
    _add_fields(create)
    update = add_verb(verbs, "update", _update, "change the description or the tags of a key")
    add_named(update, KEY)
    _add_fields(update)
    words = "let a key be used again"
    add_named(add_verb(verbs, "enable", _enable, words), KEY)
    words = "stop all use of a key: what it seals can be neither read nor written"
    disabling = add_verb(verbs, "disable", _disable, words)
    add_named(disabling, KEY)
    add_confirmation(disabling)
    words = "give a key new material for what is sealed from now on; the old still opens"
    add_named(add_verb(verbs, "rotate", _rotate, words), KEY)
    words = "delete a key in 7 to 30 days, and shred what only it opens; at once it stops all use"
    deletion = add_verb(verbs, "delete", _delete, words)
    add_named(deletion, KEY)
    deletion.add_argument(
        "--days",
        type=int,
        default=_DEFAULT_DAYS,
        metavar="N",
        help=f"days in which the deletion can be cancelled ({_DEFAULT_DAYS})",
    )
    add_confirmation(deletion)
    words = "cancel the deletion of a key, which is disabled then"
    add_named(add_verb(verbs, "cancel-deletion", _cancel_deletion, words), KEY)
    key_usage.add_parsers(verbs)


def _add_fields(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--description", metavar="TEXT", help='for persons; "" takes it away')
    repeatable(parser, "--tag", "--no-tags", "KEY=VALUE", "a tag of the key")


def _fields(options: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a key that the command line gives."""
    fields: dict[str, Any] = {}
    if options.description is not None:
        fields["description"] = options.description
    if options.tag is not None:
        fields["tags"] = pairs(options.tag)
    return fields


def _list(options: argparse.Namespace) -> int:
    rows = open_client(options).rows("/v1/keys", "keys", {"state": options.state})
    return show_list(options, rows, _COLUMNS, lambda row: str(row["name"] or row["id"]))


def _show(options: argparse.Namespace) -> int:
    write_record(find(open_client(options), KEY, options.key), options.output)
    return 0


def _create(options: argparse.Namespace) -> int:
    document = {"name": options.name, **_fields(options)}
    for field in ("key_spec", "key_usage"):
        if getattr(options, field) is not None:
            document[field] = getattr(options, field)
    made = open_client(options).create("/v1/keys", document)["key"]
    words = f"Created {made['name']}"
    if made["key_spec"] == "aes-256":
        words += f"; 'entrepot encryption set {made['name']}' seals later pushes under it"
    echo(words, options.output, made)
    return 0


def _update(options: argparse.Namespace) -> int:
    fields = _fields(options)
    if not fields:
        raise Misuse("say what is to change: --description, --tag or --no-tags")
    client = open_client(options)
    changed = client.call("PATCH", path_of(client, KEY, options.key), fields)["key"]
    echo(f"Changed {changed['name']}", options.output, changed)
    return 0


def _enable(options: argparse.Namespace) -> int:
    key = _posted(options, "enable")
    echo(f"{key['name']} is enabled", options.output, key)
    return 0


def _disable(options: argparse.Namespace) -> int:
    question = (
        f"Disable the key {options.key}? What it seals can be neither pulled nor pushed then."
    )
    confirm(options, question)
    key = _posted(options, "disable")
    words = "what it seals can be neither pulled nor pushed until it is enabled"
    echo(f"{key['name']} is disabled: {words}", options.output, key)
    return 0


def _rotate(options: argparse.Namespace) -> int:
    key = _posted(options, "rotate")
    echo(f"{key['name']} has version {key['current_version']}", options.output, key)
    return 0


def _cancel_deletion(options: argparse.Namespace) -> int:
    key = _posted(options, "cancel-deletion")
    words = f"'entrepot keys enable {key['name']}' lets it be used"
    echo(f"{key['name']} stays, disabled; {words}", options.output, key)
    return 0


def _delete(options: argparse.Namespace) -> int:
    client = open_client(options)
    key = find(client, KEY, options.key)
    name = key["name"] or key["id"]
    # On the standard error, so that a program that reads the record is not disturbed.
    out = sys.stdout if options.output == TABLE else sys.stderr
    for line in key_usage.loss_lines(client, key):
        out.write(f"{printable(line)}\n")
    out.flush()
    confirm(options, f"Delete the key {name} in {options.days} days, and shred what only it opens?")
    query = {"pending_window_days": options.days}
    gone = client.call("DELETE", f"{KEY.path}/{key['id']}", query=query)["key"]
    when = time_text(gone["deletion_at"])
    words = f"'entrepot keys cancel-deletion {name}' keeps it until then"
    echo(f"{name} is deleted at {when}; {words}", options.output, gone)
    return 0


def _posted(options: argparse.Namespace, verb: str) -> Record:
    """Do `verb` to the key that the command line names, and return its record."""
    client = open_client(options)
    done: Record = client.create(f"{path_of(client, KEY, options.key)}/{verb}")["key"]
    return done

"""``entrepot encryption``: under which key a repository, or the account, stores its blobs."""

from __future__ import annotations

import argparse
from typing import Final

from registry.cli import rewrap
from registry.cli.api import ApiClient, Record, open_client
from registry.cli.listing import show_rows
from registry.cli.options import Verbs, add_noun, add_verb
from registry.cli.output import TABLE, Column, column, echo, time_text, write_record
from registry.cli.references import find_repository

_COLUMNS: Final = (
    Column("KEY", lambda row: _name_of(row["kms_key"])),
    column("STATUS", "status"),
    column("SINCE", "created_at", time_text),
    column("ENDED", "ended_at", time_text),
    Column("KEY ID", lambda row: row["kms_key"]["id"], is_whole=True),
)
_REASONS: Final = {
    "repository": "its own binding",
    "account": "the account's default",
    "platform": "nothing is bound to another",
}


def add_parsers(commands: Verbs) -> None:
    """Add ``encryption`` and its commands."""
    verbs = add_noun(commands, "encryption", "under which key blobs are stored encrypted")
    words = "show the key that seals what is pushed, and what binds it"
    _add_scope(add_verb(verbs, "show", _show, words))
    words = "seal later pushes under a key; what is stored stays under its own"
    setting = add_verb(verbs, "set", _set, words)
    setting.add_argument("key", metavar="KEY", help="an aes-256 key: its name, id or CRN")
    _add_scope(setting)
    words = "seal later pushes under the account's default again, or the platform's key"
    _add_scope(add_verb(verbs, "reset", _reset, words))
    words = "list what was bound, newest first"
    _add_scope(add_verb(verbs, "history", _history, words))
    rewrap.add_parsers(verbs)


def _add_scope(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--repository",
        metavar="REPOSITORY",
        help="of this repository (of all without a key of their own)",
    )


def _path(client: ApiClient, options: argparse.Namespace) -> str:
    if options.repository is None:
        return "/v1/encryption-binding"
    found = find_repository(client, options.repository)
    return f"/v1/repositories/{found['id']}/encryption-binding"


def _show(options: argparse.Namespace) -> int:
    client = open_client(options)
    _echo(options, client.call("GET", _path(client, options))["encryption_binding"])
    return 0


def _set(options: argparse.Namespace) -> int:
    client = open_client(options)
    path, body = _path(client, options), {"kms_key": options.key}
    _echo(options, client.call("PUT", path, body)["encryption_binding"])
    return 0


def _reset(options: argparse.Namespace) -> int:
    client = open_client(options)
    path = _path(client, options)
    client.call("DELETE", path)
    _echo(options, client.call("GET", path)["encryption_binding"])
    return 0


def _history(options: argparse.Namespace) -> int:
    client = open_client(options)
    rows = client.rows(f"{_path(client, options)}s", "encryption_bindings")
    show_rows(options, rows, _COLUMNS)
    return 0


def _echo(options: argparse.Namespace, binding: Record) -> None:
    """Print in a line which key seals what; for a program the record."""
    if options.output != TABLE:
        write_record(binding, options.output)
        return
    whose = options.repository or "Repositories without a key of their own"
    if binding["kms_key"] is None:
        echo(f"{whose}: not encrypted; this registry has no keys", options.output)
        return
    words = f"{whose}: {_name_of(binding['kms_key'])} ({_REASONS[binding['source']]})"
    if binding["status"] != "active":
        state = binding["status"].removeprefix("key_")
        words += f"; the key is {state}, so nothing can be pushed"
    echo(words, options.output)


def _name_of(key: Record) -> str:
    """Return the name of a key, or the id of a deleted one."""
    return str(key["name"] or key["id"])

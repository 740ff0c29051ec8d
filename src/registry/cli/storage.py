"""``entrepot storage``: the bytes an account stores, and what deduplication saves."""

from __future__ import annotations

import argparse
from typing import Final

from registry.cli.api import Record, open_client
from registry.cli.options import Verbs, add_noun, add_verb
from registry.cli.output import TABLE, Column, column, size_text, write_record, write_records

_COLUMNS: Final = (
    Column("REPOSITORY", lambda row: row["repository"]["name"]),
    column("IMAGES", "image_count", is_number=True),
    column("LOGICAL", "logical_bytes", size_text, is_number=True),
    column("STORED", "size_bytes", size_text, is_number=True),
    column("SHARED", "shared_bytes", size_text, is_number=True),
    column("FREED IF DELETED", "exclusive_bytes", size_text, is_number=True),
)


def add_parsers(commands: Verbs) -> None:
    """Add ``storage`` and its command."""
    verbs = add_noun(commands, "storage", "storage that the account's images use")
    usage = add_verb(verbs, "usage", _show_usage, "show what is stored and what sharing saves")
    usage.add_argument("--by-repository", action="store_true", help="the share of each repository")


def _show_usage(options: argparse.Namespace) -> int:
    query = {"group_by": "repository" if options.by_repository else None}
    usage: Record = open_client(options).call("GET", "/v1/storage-usage", query=query)[
        "storage_usage"
    ]
    if options.by_repository and options.output == TABLE:
        write_records(usage["repositories"], _COLUMNS, options.output)
    else:
        write_record(usage, options.output)
    return 0

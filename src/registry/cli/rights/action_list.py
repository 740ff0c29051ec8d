"""``entrepot policies actions``: what policies can name."""

from __future__ import annotations

import argparse
from typing import Final

from registry.cli.api import open_client
from registry.cli.listing import add_quiet, show_list
from registry.cli.options import Verbs, add_verb
from registry.cli.output import column

_COLUMNS: Final = (
    column("ACTION", "name", is_whole=True),
    column("SUMMARY", "summary"),
    column("RESOURCE", "resource", is_whole=True),
)


def add_parsers(verbs: Verbs) -> None:
    """Add ``actions`` to the commands of policies."""
    actions = add_verb(verbs, "actions", _list, "list the actions that policies can name")
    actions.add_argument(
        "prefix", metavar="PREFIX", nargs="?", default="", help="such as registry: or iam:Get"
    )
    add_quiet(actions, "names")


def _list(options: argparse.Namespace) -> int:
    rows = open_client(options).call("GET", "/v1/actions")["actions"]
    found = [row for row in rows if row["name"].startswith(options.prefix)]
    return show_list(options, found, _COLUMNS, lambda row: str(row["name"]))

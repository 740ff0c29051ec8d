"""``entrepot policies templates``: the ready-made policies."""

from __future__ import annotations

import argparse
from typing import Final

from registry.cli.api import open_client
from registry.cli.failure import Missing
from registry.cli.options import Verbs, add_verb
from registry.cli.output import TABLE, column, printable, write_record, write_records

_COLUMNS: Final = (column("NAME", "name"), column("SUMMARY", "summary"))
_STATEMENT_COLUMNS: Final = (
    column("SID", "sid"),
    column("EFFECT", "effect"),
    column("ACTIONS", "actions"),
    column("RESOURCES", "resources"),
)


def add_parsers(verbs: Verbs) -> None:
    """Add ``templates`` to the commands of policies."""
    parser = add_verb(verbs, "templates", _show, "list ready-made policies, or show one")
    parser.add_argument("template", metavar="TEMPLATE", nargs="?", help="show its statements")
    parser.add_argument(
        "--names",
        metavar="NAMES",
        help="of the repositories, separated by commas, such as web/* (all)",
    )


def _show(options: argparse.Namespace) -> int:
    query = {"names": options.names}
    rows = open_client(options).call("GET", "/v1/policy-templates", query=query)
    templates = rows["policy_templates"]
    if options.template is None:
        write_records(templates, _COLUMNS, options.output)
        return 0
    for row in templates:
        if row["name"] == options.template and options.output == TABLE:
            write_records(row["document"]["statements"], _STATEMENT_COLUMNS, options.output)
            return 0
        if row["name"] == options.template:
            write_record(row, options.output)
            return 0
    names = ", ".join(row["name"] for row in templates)
    raise Missing(f"there is no template {printable(options.template)!r}; there are {names}")

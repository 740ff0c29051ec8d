"""``entrepot usage``: metered usage of the account, or of each account of an organization."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Cell, Command, Option
from cloudcore.identity.commands.options import find_organization, person
from registry.cli.client.api import PAGE_ROWS
from registry.cli.commands.audit import parse_moment

_COLUMNS: Final = (
    Cell("FROM", "from", "time"),
    Cell("TO", "to", "time"),
    "sku",
    Cell("QUANTITY", shown=lambda usage: f"{usage['quantity']} {usage['unit']}"),
)
_ACCOUNT: Final = Cell("ACCOUNT", "account.name")


def _show(run: Invocation) -> None:
    now, given, client = datetime.now(UTC), run.values, run.client
    query = {
        "from": parse_moment(given.get("from"), now),
        "to": parse_moment(given.get("to"), now),
        "sku": given.get("sku"),
        "granularity": given.get("by"),
        "limit": PAGE_ROWS,
    }
    columns: tuple[Cell | str, ...] = _COLUMNS
    if "organization" in given:
        client, columns = person(run), (*_COLUMNS, _ACCOUNT)
        found = find_organization(client, run.sign_in, given["organization"])
        query["organization_id"] = found["id"]
    run.show_rows(client.rows("/v1/usage", "usage", query), columns)


COMMANDS: Final = (
    Command(
        "usage",
        "show what the account has used, by day or hour",
        options=(
            Option(
                "from",
                "RFC 3339 (2026-01-31T08:00:00Z), a date, or 90m, 24h, 7d (30d before --to)",
                metavar="TIME",
            ),
            Option("to", "the same; the first moment left out (now)", metavar="TIME"),
            Option("sku", "one of those that 'catalog prices' names (all)", metavar="SKU"),
            Option("by", "hour or day, in UTC (day)", choices=("hour", "day")),
            Option(
                "organization",
                "one that you own or pay for, by name or id: all its accounts (the account)",
                metavar="NAME",
            ),
        ),
        run=_show,
    ),
)

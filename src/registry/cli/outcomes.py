"""The outcome of each item of a request that takes many."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

from registry.cli.failure import FAILED
from registry.cli.listing import show_rows
from registry.cli.output import TABLE, Record, column, write_record

Line = dict[str, str]

BATCH: Final = 100
"""The most items that one request takes."""

_COLUMNS: Final = (
    column("ITEM", "item", has_digests=True),
    column("OUTCOME", "outcome"),
    column("DETAIL", "detail", has_digests=True),
)


def batches(items: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the items in batches that fit one request."""
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]


def line(item: str, outcome: str, detail: str) -> Line:
    """Return the table row of an item."""
    return {"item": item, "outcome": outcome, "detail": detail}


def failed(failure: Record) -> Line:
    """Return the table row of an item that failed."""
    item = failure.get("tag") or failure["digest"]
    params = failure.get("params", {})
    holders = {"pins": params.get("pins"), "in": params.get("parents")}
    which = "; ".join(f"{name}: {', '.join(held)}" for name, held in holders.items() if held)
    why = f"{failure['code']}: {failure['message']}"
    return line(item, "refused", f"{why} ({which})" if which else why)


def write_outcome(
    options: argparse.Namespace, document: dict[str, Any], lines: Sequence[Line]
) -> int:
    """Print the outcome of each item; return 1 if one was refused, else 0.

    Then the standard error says how many were: a table of many items may have scrolled away.
    """
    if options.output != TABLE:
        write_record(document, options.output)
    else:
        show_rows(options, lines, _COLUMNS)
    refused = len(document["failures"])
    if not refused:
        return 0
    sys.stdout.flush()
    sys.stderr.write(f"entrepot: {refused} of {len(lines)} items were refused\n")
    return FAILED

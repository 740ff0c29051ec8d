"""The outcome of each item of a request that takes many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from registry.cli.output import TABLE, Record, column, write_record, write_records

Line = dict[str, str]

BATCH: Final = 100
"""The most items that one request takes."""

_COLUMNS: Final = (column("ITEM", "item"), column("OUTCOME", "outcome"), column("DETAIL", "detail"))


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
    held = ", ".join(failure.get("params", {}).get("pins", ()))
    which = f" (pins: {held})" if held else ""
    return line(item, "failed", f"{failure['code']}: {failure['message']}{which}")


def write_outcome(document: dict[str, Any], lines: Sequence[Line], form: str) -> None:
    """Print the outcome: the document of the API, or a table with a row for each item."""
    if form != TABLE:
        write_record(document, form)
    else:
        write_records(lines, _COLUMNS, form)

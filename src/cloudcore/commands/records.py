"""Print records as a table for people, or as JSON, JSON lines or YAML for programs.

Names and descriptions come from other people, so control characters in them are escaped.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import msgspec

from cloudcore.clock import MICROSECONDS
from cloudcore.commands.nouns import Cell, CellForm, Columns, Record
from cloudcore.commands.table import write_table

TABLE: Final = "table"
FORMS: Final = (TABLE, "json", "jsonl", "yaml")
"""The values of ``--output``."""

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_ENDS: Final[Mapping[str, tuple[CellForm, str]]] = {
    "at": ("time", ""),
    "bytes": ("size", ""),
    "count": ("number", "s"),
}
"""Maps the last word of a field's name to the field's form, and to the word's replacement in the
heading."""
_DIGEST: Final = re.compile(r"\b(sha256|sha512|blake3):([0-9a-f]{12})[0-9a-f]{52,116}\b")


def cells_of(columns: Columns) -> list[Cell]:
    """Return a table's columns as `Cell`s; a column may be listed by its field name alone."""
    return [_cell_of(each) if isinstance(each, str) else each for each in columns]


def _cell_of(field: str) -> Cell:
    name = field.rpartition(".")[2]
    stem, _, kind = name.rpartition("_")
    form, end = _ENDS.get(kind, ("text", "")) if stem else ("text", "")
    heading = name if form == "text" else stem + end
    if form == "text":
        form = "digest" if name == "digest" else "whole" if name.endswith("id") else "text"
    return Cell(heading.replace("_", " ").upper(), field, form)


def field_of(record: Record, field: str) -> Any:  # noqa: ANN401 - of any kind
    """Return a field of a record, or a nested one (``user.name``); None if it is absent."""
    value: Any = record
    for name in field.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def value_of(cell: Cell, record: Record) -> object:
    """Return a row's value in a column, formatted."""
    value: Any = field_of(record, cell.field) if cell.shown is None else cell.shown(record)
    shape: Any = _TEXTS.get(cell.form)
    return value if shape is None or value is None else shape(value)


def write_records(
    records: Iterable[Record], columns: Columns, form: str, out: TextIO | None = None
) -> None:
    """Write rows as they arrive: as a table, or with all fields in one of the other `FORMS`."""
    out = out or sys.stdout
    if form != TABLE:
        out.writelines(_list_parts(records, form))
        return
    cells = cells_of(columns)
    rows = ([text_of(_brief(value_of(each, record))) for each in cells] for record in records)
    write_table(cells, rows, out)


def write_record(record: Record, form: str, out: TextIO | None = None) -> None:
    """Write one record: one line for each field, or one document."""
    out = out or sys.stdout
    if form != TABLE:
        out.write(document_text(record, form))
        return
    cells = (Cell("FIELD"), Cell("VALUE", form="whole"))
    rows = [[printable(name), text_of(formatted(name, record[name]))] for name in record]
    write_table(cells, rows, out)


def write_now(text: str) -> None:
    """Write a text to standard output, and flush it."""
    sys.stdout.write(text)
    sys.stdout.flush()


def document_text(value: object, form: str) -> str:
    """Format a value as YAML, as one line of JSON (``jsonl``), or else as indented JSON."""
    if form == "yaml":
        return msgspec.yaml.encode(value).decode()
    if form == "jsonl":
        return f"{msgspec.json.encode(value).decode()}\n"
    return f"{indented(value)}\n"


def _list_parts(records: Iterable[Record], form: str) -> Iterator[str]:
    """Yield the text of a list, one part for each record as it arrives."""
    if form == "jsonl":
        yield from (document_text(record, form) for record in records)
        return
    count = 0
    for count, record in enumerate(records, start=1):
        if form == "yaml":
            yield document_text([record], form)
        else:
            yield f"{'[' if count == 1 else ','}\n{indented(record)}"
    if not count:
        yield "[]\n"
    elif form == "json":
        yield "\n]\n"


def indented(value: object) -> str:
    """Format a value as JSON, indented by two spaces."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def text_of(value: object) -> str:
    """Format a JSON value as the text of a table cell; ``-`` if it is empty."""
    if value in (None, "", [], {}):
        return "-"
    match value:
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(map(text_of, value))
        case dict():
            return ", ".join(f"{printable(str(name))}={_inner(value[name])}" for name in value)
        case _:
            return printable(str(value))


def _brief(value: object) -> object:
    """Replace an object that refers to another resource by that resource's name, also in lists."""
    match value:
        case {"id": _, "crn": _, "name": str(name), **more} if name and not more:
            return name
        case list():
            return [_brief(each) for each in value]
        case _:
            return value


def _inner(value: object) -> str:
    """Format a value inside an object; put a nested object in braces."""
    return f"{{{text_of(value)}}}" if value and isinstance(value, dict) else text_of(value)


def printable(text: str) -> str:
    """Escape control characters and text-direction marks."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def formatted(name: str, value: object) -> object:
    """Format a size or a time, recognized by the field's name; return other values unchanged."""
    if isinstance(value, int) and name.endswith("_bytes"):
        return size_text(value)
    if isinstance(value, str) and name.endswith(("_at", "_until", "as_of")):
        return time_text(value)
    return value


def size_text(size: int) -> str:
    """Format a number of bytes with a unit, in powers of 1000."""
    amount, unit = float(size), _UNITS[0]
    for following in _UNITS[1:]:
        if round(amount, 1) < 1000:
            break
        amount, unit = amount / 1000, following
    return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"


def duration_text(seconds: int) -> str:
    """Format a duration in the largest unit that divides it: hours, minutes or seconds."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds and seconds % length == 0:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def utc_text(moment: int) -> str:
    """Format microseconds since the epoch as RFC 3339 text in UTC, to the second."""
    return datetime.fromtimestamp(moment // MICROSECONDS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def time_text(moment: str) -> str:
    """Format an API time in UTC, to the second."""
    return f"{moment[:19].replace('T', ' ')}Z"


_TEXTS: Final = {"time": time_text, "size": size_text, "duration": duration_text}


def add_quiet(parser: argparse.ArgumentParser, words: str) -> None:
    """Add ``--quiet``, which prints only `words`, such as the names of the rows."""
    parser.add_argument("--quiet", "-q", action="store_true", help=f"print only {words}")


def add_full_digests(parser: argparse.ArgumentParser) -> None:
    """Add ``--full-digests``; without it, tables shorten digests."""
    parser.add_argument(
        "--full-digests",
        "--no-trunc",
        action="store_true",
        help="whole digests in the table, not their first 12 digits",
    )


def with_short_digests(text: str) -> str:
    """Shorten the digests in a text to 12 hex digits, without ``sha256:``, as docker does."""
    return _DIGEST.sub(lambda found: f"{found[1]}:{found[2]}".removeprefix("sha256:"), text)


def shows_digests(cell: Cell) -> bool:
    """Return True if digests in this column are shortened."""
    return cell.form in ("digest", "digests")


def by_column(principal: str, source: str) -> Cell:
    """Return the column BY, which tells who acted.

    `principal` is the field with the principal's CRN, `source` the field with the name and the
    session behind the CRN.
    """

    def shown(record: Record) -> object:
        crn, behind = record.get(principal), record.get(source)
        if not crn or not behind:
            return crn
        name, session = behind["name"], behind["session_name"]
        if session is None:
            kind = crn.rpartition(":")[2].partition("/")[0]
            return name if kind == "user" else f"{name} ({kind.replace('-', ' ')})"
        return f"{name} ({crn})" if session == name else f"{name}, session {session} ({crn})"

    return Cell("BY", shown=shown)

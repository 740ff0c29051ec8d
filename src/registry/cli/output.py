"""What commands print: records as a table for persons, or as JSON for programs.

Names and descriptions were written by others, so nothing of them may steer a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TextIO

import msgspec

from registry.cli.table import Heading, write_table

Record = Mapping[str, Any]

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")


class Column(NamedTuple):
    """One column of a table."""

    heading: str
    cell: Callable[[Record], object]
    """Takes a record; what it returns is shown as `text_of` has it."""
    is_number: bool = False
    is_whole: bool = False
    """Never folded, so that it can be copied: the table is as wide as it must be."""


def column(
    heading: str,
    name: str,
    shape: Callable[[Any], str] | None = None,
    *,
    is_number: bool = False,
    is_whole: bool = False,
) -> Column:
    """Return the column of the field `name`, shaped by a function such as `size_text`."""

    def cell(record: Record) -> object:
        value = record.get(name)
        return value if shape is None or value is None else shape(value)

    return Column(heading, cell, is_number, is_whole)


def write_records(
    records: Iterable[Record], columns: Sequence[Column], form: str, out: TextIO | None = None
) -> None:
    """Write a list, as ``table`` or ``json``, which has every field; both flow as rows come."""
    out = out or sys.stdout
    if form == "json":
        before = "["
        for record in records:
            out.write(f"{before}\n{json_text(record)}")
            before = ","
        out.write("[]\n" if before == "[" else "\n]\n")
        return
    headings = [Heading(each.heading, each.is_number, each.is_whole) for each in columns]
    rows = ([text_of(each.cell(record)) for each in columns] for record in records)
    write_table(headings, rows, out)


def write_record(record: Record, form: str, out: TextIO | None = None) -> None:
    """Write one thing: a line a field, or its JSON object."""
    out = out or sys.stdout
    if form == "json":
        out.write(f"{json_text(record)}\n")
        return
    headings = (Heading("FIELD"), Heading("VALUE", is_whole=True))
    rows = [[printable(name), text_of(_shaped(name, record[name]))] for name in record]
    write_table(headings, rows, out)


def echo(text: str, form: str, record: Record | None = None, out: TextIO | None = None) -> None:
    """Say to a person what was done; a program gets the record, when there is one."""
    if form == "json":
        if record is not None:
            write_record(record, form, out)
        return
    (out or sys.stdout).write(f"{printable(text)}\n")


def json_text(value: object) -> str:
    """Return a value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def text_of(value: object) -> str:
    """Return a value of JSON as a cell shows it."""
    if value in (None, "", [], {}):
        return "-"
    match value:
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(map(text_of, value))
        case dict():
            return ", ".join(f"{printable(str(name))}={text_of(value[name])}" for name in value)
        case _:
            return printable(str(value))


def printable(text: str) -> str:
    """Return a text with all that could steer a terminal, or turn its writing, spelled out."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def _shaped(name: str, value: object) -> object:
    """Return a value as its field's name asks for."""
    if isinstance(value, int) and name.endswith("_bytes"):
        return size_text(value)
    if isinstance(value, str) and name.endswith(("_at", "_until", "as_of")):
        return time_text(value)
    return value


def size_text(size: int) -> str:
    """Return a number of bytes in the unit a person would use, powers of a thousand."""
    amount, unit = float(size), _UNITS[0]
    for following in _UNITS[1:]:
        if round(amount, 1) < 1000:
            break
        amount, unit = amount / 1000, following
    return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"


def duration_text(seconds: int) -> str:
    """Return a time in the largest unit of which it is a whole number."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds and seconds % length == 0:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def time_text(moment: str) -> str:
    """Return a moment of the API to the second, still in UTC."""
    return f"{moment[:19].replace('T', ' ')}Z"

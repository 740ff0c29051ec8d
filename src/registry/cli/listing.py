"""Print lists as the options of a command say: names alone, a table, or documents."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from cloudcore.command_line import Cell, Record
from registry.cli.output import Column, printable, text_of, write_records

_DIGEST: Final = re.compile(r"\b(sha256|sha512|blake3):([0-9a-f]{12})[0-9a-f]{52,116}\b")


def add_quiet(parser: argparse.ArgumentParser, words: str) -> None:
    """Add ``--quiet``, which prints only how other commands name each row."""
    parser.add_argument("--quiet", "-q", action="store_true", help=f"print only {words}")


def add_full_digests(parser: argparse.ArgumentParser) -> None:
    """Add ``--full-digests``, without which tables have short digests."""
    parser.add_argument(
        "--full-digests",
        "--no-trunc",
        action="store_true",
        help="whole digests in the table, not their first 12 digits",
    )


def show_rows(
    options: argparse.Namespace,
    rows: Iterable[Record],
    columns: Sequence[Column],
    name_of: Callable[[Record], str] | None = None,
) -> None:
    """Print rows as they come; with ``--quiet`` a line with the name of each."""
    if name_of is not None and options.quiet:
        sys.stdout.writelines(f"{printable(name_of(row))}\n" for row in rows)
        return
    shown = [_shortened(options, each) if each.has_digests else each for each in columns]
    write_records(rows, shown, options.output)


def digests_shown(options: argparse.Namespace, text: str) -> str:
    """Return a text, its digests short unless the options say otherwise."""
    return text if getattr(options, "full_digests", False) else _DIGEST.sub(_cut, text)


def _cut(found: re.Match[str]) -> str:
    """Return a digest as docker shows it: its first 12 digits; only ``sha256:`` is left out."""
    algorithm, digits = found.groups()
    return digits if algorithm == "sha256" else f"{algorithm}:{digits}"


def _shortened(options: argparse.Namespace, column: Column) -> Column:
    return column._replace(cell=lambda row: digests_shown(options, text_of(column.cell(row))))


def acting(principal: str, source: str) -> Cell:
    """Return the column BY of the fields of a principal and of the source behind it."""

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

"""Print lists as the options of a command say: names alone, a table, or documents."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence

from registry.cli.output import Column, Record, printable, text_of, write_records
from registry.cli.short_digests import shorten_digests


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


def show_list(
    options: argparse.Namespace,
    rows: Iterable[Record],
    columns: Sequence[Column],
    name_of: Callable[[Record], str],
) -> int:
    """Print rows as they come; with ``--quiet`` a line with the name of each. Return 0."""
    if options.quiet:
        sys.stdout.writelines(f"{printable(name_of(row))}\n" for row in rows)
    else:
        show_rows(options, rows, columns)
    return 0


def show_rows(
    options: argparse.Namespace, rows: Iterable[Record], columns: Sequence[Column]
) -> None:
    """Print rows as they come, in a table with short digests unless the options say otherwise."""
    shown = [_shortened(options, each) if each.has_digests else each for each in columns]
    write_records(rows, shown, options.output)


def digests_shown(options: argparse.Namespace, text: str) -> str:
    """Return a text, its digests short unless the options say otherwise."""
    return text if getattr(options, "full_digests", False) else shorten_digests(text)


def _shortened(options: argparse.Namespace, column: Column) -> Column:
    return column._replace(cell=lambda row: digests_shown(options, text_of(column.cell(row))))

"""Tables for persons: printed as rows arrive, with cells folded on a narrow terminal."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, TextIO

from cloudcore.commands.nouns import Cell

_NUMBERS: Final = ("number", "size", "duration")
_WHOLE: Final = ("whole", "digest")
_GAP: Final = 2
_BATCH: Final = 1000
"""Rows read before the first is written, to size the columns; later rows may widen the columns."""
_WHOLE_WORD: Final = 20
"""A table is folded only if words up to this length stay whole, so that it stays readable."""

Row = Sequence[str]


def write_table(cells: Sequence[Cell], rows: Iterable[Row], out: TextIO) -> None:
    """Write rows under the headings of `cells`; on a narrow terminal, fold them.

    Values of a column marked as whole are never folded, so that they can be copied; such a table
    may become wider than the terminal.
    """
    if out.isatty() and not any(each.form in _WHOLE for each in cells):
        rows = list(rows)
        width = shutil.get_terminal_size().columns
        if _should_fold(cells, rows, width):
            out.write(_folded(cells, rows, width, out))
            return
    coming = iter(rows)
    top = [each.heading for each in cells]
    batch = list(islice(coming, _BATCH))
    widths = _widened([0] * len(top), [top, *batch])
    bold, plain = ("\x1b[1m", "\x1b[0m") if _is_styled(out) else ("", "")
    out.write(f"{bold}{_line(cells, top, widths)}{plain}\n")
    while batch:
        out.writelines(f"{_line(cells, row, widths)}\n" for row in batch)
        batch = list(islice(coming, _BATCH))
        widths = _widened(widths, batch)


def _line(cells: Sequence[Cell], row: Row, widths: Sequence[int]) -> str:
    padded = []
    for cell, text, width in zip(cells, row, widths, strict=True):
        blanks = " " * (width - _length(text))
        padded.append(blanks + text if cell.form in _NUMBERS else text + blanks)
    return (" " * _GAP).join(padded).rstrip()


def _widened(widths: Sequence[int], rows: Sequence[Row]) -> list[int]:
    """Return column widths, widened to fit these rows."""
    columns = zip(*rows, strict=True) if rows else [()] * len(widths)
    return [
        max(width, *map(_length, column), 0) for width, column in zip(widths, columns, strict=True)
    ]


def _length(text: str) -> int:
    """Return the number of terminal columns that a text occupies."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - slow to load, and few names need it

    return cell_len(text)


def _should_fold(cells: Sequence[Cell], rows: Sequence[Row], width: int) -> bool:
    """Return True if a table is wider than the terminal, but readable when folded."""
    everything = [[each.heading for each in cells], *rows]
    gaps = _GAP * (len(cells) - 1)
    whole = sum(_widened([0] * len(cells), everything)) + gaps
    words = (map(_length, " ".join(column).split()) for column in zip(*everything, strict=True))
    least = sum(min(max(lengths), _WHOLE_WORD) for lengths in words) + gaps
    return least <= width < whole


def _folded(cells: Sequence[Cell], rows: Sequence[Row], width: int, out: TextIO) -> str:
    from rich.console import Console  # noqa: PLC0415 - slow to load, and few tables need it
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    style = "bold" if _is_styled(out) else ""
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style=style)
    for each in cells:
        is_number = each.form in _NUMBERS
        table.add_column(
            Text(each.heading),
            justify="right" if is_number else "left",
            overflow="fold",
            no_wrap=is_number,
        )
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(file=out, width=width)
    with console.capture() as captured:
        console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def _is_styled(out: TextIO) -> bool:
    """Return True if headings may be printed bold."""
    return (
        out.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") not in (None, "", "dumb", "unknown")
    )

"""Tables for persons: written as rows come, with cells folded on a narrow terminal."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple, TextIO

_GAP: Final = 2
_BATCH: Final = 1000
"""Rows read before the first is written, to size the columns; later rows may widen these."""
_WHOLE_WORD: Final = 20
"""A table is folded only if words up to this length stay whole, so that it stays readable."""

Row = Sequence[str]


class Heading(NamedTuple):
    """The top of a column, and how the column is written."""

    text: str
    is_number: bool = False
    is_whole: bool = False
    """Never folded, so that it can be copied; the table may become wider than the terminal."""


def write_table(headings: Sequence[Heading], rows: Iterable[Row], out: TextIO) -> None:
    """Write rows under their headings; fold cells on a narrow terminal, unless one `is_whole`."""
    if out.isatty() and not any(each.is_whole for each in headings):
        rows = list(rows)
        width = shutil.get_terminal_size().columns
        if _should_fold(headings, rows, width):
            out.write(_folded(headings, rows, width, out))
            return
    coming = iter(rows)
    top = [each.text for each in headings]
    batch = list(islice(coming, _BATCH))
    widths = _widened([0] * len(top), [top, *batch])
    bold, plain = ("\x1b[1m", "\x1b[0m") if _is_styled(out) else ("", "")
    out.write(f"{bold}{_line(headings, top, widths)}{plain}\n")
    while batch:
        out.writelines(f"{_line(headings, row, widths)}\n" for row in batch)
        batch = list(islice(coming, _BATCH))
        widths = _widened(widths, batch)


def _line(headings: Sequence[Heading], row: Row, widths: Sequence[int]) -> str:
    cells = []
    for heading, text, width in zip(headings, row, widths, strict=True):
        blanks = " " * (width - _length(text))
        cells.append(blanks + text if heading.is_number else text + blanks)
    return (" " * _GAP).join(cells).rstrip()


def _widened(widths: Sequence[int], rows: Sequence[Row]) -> list[int]:
    """Return the widths of columns, widened to fit these rows."""
    columns = zip(*rows, strict=True) if rows else [()] * len(widths)
    return [
        max(width, *map(_length, column), 0) for width, column in zip(widths, columns, strict=True)
    ]


def _length(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - slow to load, and few names need it

    return cell_len(text)


def _should_fold(headings: Sequence[Heading], rows: Sequence[Row], width: int) -> bool:
    """Return True if a table is wider than the terminal, and readable when folded."""
    everything = [[each.text for each in headings], *rows]
    gaps = _GAP * (len(headings) - 1)
    whole = sum(_widened([0] * len(headings), everything)) + gaps
    words = (map(_length, " ".join(column).split()) for column in zip(*everything, strict=True))
    least = sum(min(max(lengths), _WHOLE_WORD) for lengths in words) + gaps
    return least <= width < whole


def _folded(headings: Sequence[Heading], rows: Sequence[Row], width: int, out: TextIO) -> str:
    from rich.console import Console  # noqa: PLC0415 - slow to load, and few tables need it
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    style = "bold" if _is_styled(out) else ""
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style=style)
    for each in headings:
        justify = "right" if each.is_number else "left"
        table.add_column(
            Text(each.text),
            justify=justify,  # type: ignore[arg-type]
            overflow="fold",
            no_wrap=each.is_number,
        )
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(file=out, width=width)
    with console.capture() as captured:
        console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def _is_styled(out: TextIO) -> bool:
    """Return True if headings may be bold."""
    return (
        out.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") not in (None, "", "dumb", "unknown")
    )

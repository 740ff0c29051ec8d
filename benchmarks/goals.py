"""Measure small pulls, pushes, and rates by clients, and bring the tables of the README up to date.

    python -m benchmarks.goals                  # all three parts, about ten minutes
    python -m benchmarks.goals reads            # one part
    python -m benchmarks.goals reads --from RESULT.json

Each part is one run of all registries that it compares. Its table replaces the one between its
marks in ``benchmarks/README.md``; the curves are ``benchmarks/rates.svg``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import __main__ as benchmark
from benchmarks import plot
from benchmarks.report import ABSENT, number
from benchmarks.servers import ROOT

README: Final = ROOT / "benchmarks" / "README.md"
CURVES: Final = ROOT / "benchmarks" / "rates.svg"
OURS, PLAIN, PEER = "entrepot-sealed", "entrepot-plain", "docker-registry"
POSTGRESQL = "entrepot-sealed-postgresql"
NOTHING_KEPT = f"{OURS}:KEPT_ANSWERS_BYTES:0"
BESIDE: Final = " beside 100 commits/s"

Document = Mapping[str, Any]


class Part(NamedTuple):
    """What one run measures, and the lines of Markdown that it gives."""

    targets: tuple[str, ...]
    rows: str
    """A regular expression."""
    table: Callable[[Document], list[str]]


class Cell(NamedTuple):
    """The rate and processor time of one row on one target; None if it could not be measured."""

    rate: float | None
    cpu: float | None


def cell(document: Document, row: str, target: str) -> Cell:
    """Return what was measured, if it was."""
    for each in document["rows"]:
        if each["row"] == row and target in each["targets"]:
            found = each["targets"][target]
            return Cell(found["value"], found["cpu"])
    return Cell(None, None)


def times(first: float | None, second: float | None) -> str:
    """Return `first` as a multiple of `second`."""
    return number(first / second) if first and second else ABSENT


def table_of_reads(document: Document) -> list[str]:
    """Return rates, and processor time in each circumstance."""
    lines = [
        (
            f"| row | req/s | `{PEER}` | ratio | µs | beside commits | nothing kept"
            " | PostgreSQL | PostgreSQL beside commits |"
        ),
        "|---|" + "---|" * 8,
    ]
    for each in document["rows"]:
        row = each["row"]
        if row.endswith(BESIDE):
            continue
        ours, peer = cell(document, row, OURS), cell(document, row, PEER)
        quiet = cell(document, row, POSTGRESQL)
        others = (
            (cell(document, row + BESIDE, OURS), ours),
            (cell(document, row, NOTHING_KEPT), ours),
            (quiet, ours),
            (cell(document, row + BESIDE, POSTGRESQL), quiet),
        )
        costs = [f"{number(other.cpu)} ({times(other.cpu, base.cpu)})" for other, base in others]
        rates = (number(ours.rate), number(peer.rate), times(ours.rate, peer.rate))
        lines.append(f"| `{row}` | {' | '.join((*rates, number(ours.cpu), *costs))} |")
    return lines


def table_of_pushes(document: Document) -> list[str]:
    """Return rates and processor time as multiples of the peer's."""
    lines = [
        (
            "| row | sealed: rate | processor time | plain: rate | processor time"
            " | PostgreSQL: processor time beside SQLite |"
        ),
        "|---|" + "---|" * 5,
    ]
    for each in document["rows"]:
        row = each["row"]
        peer, ours = cell(document, row, PEER), cell(document, row, OURS)
        found = (ours, cell(document, row, PLAIN))
        shown = [times(*pair) for c in found for pair in zip(c, peer, strict=True)]
        lines.append(
            f"| `{row}` | {' | '.join(shown)} |"
            f" {times(cell(document, row, POSTGRESQL).cpu, ours.cpu)} |"
        )
    return lines


def draw(document: Document) -> list[str]:
    """Draw the curves; return a link to them."""
    CURVES.write_text(plot.rates(document))
    return [f"![Requests a second by the number of clients]({CURVES.name})"]


SMALL: Final = r"(manifest (GET|HEAD) by (tag|digest)|blob (GET|HEAD) 4 KiB) x16"
PARTS: Final = {
    "reads": Part((OURS, NOTHING_KEPT, POSTGRESQL, PEER), SMALL, table_of_reads),
    "pushes": Part(
        (OURS, PLAIN, POSTGRESQL, PEER),
        r"blob push (whole )?(4 KiB x[14]|64 MiB x4)$",
        table_of_pushes,
    ),
    "rates": Part((OURS, PEER), r"manifest GET by tag x\d+$", draw),
}


def replaced(text: str, name: str, lines: Sequence[str]) -> str:
    """Return `text` with other lines between the marks of a part."""
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    pattern = re.compile(f"({re.escape(start)}).*?({re.escape(end)})", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"{README} has no marks for {name}")
    return pattern.sub(lambda found: f"{found[1]}" + "\n".join([*lines, found[2]]), text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.goals", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help=", ".join(PARTS))
    parser.add_argument("--from", dest="file", type=Path, help="a result, instead of a run")
    parser.add_argument("--rounds", default="3")
    parser.add_argument("--seconds", default="0.5")
    parser.add_argument("--data", default=str(benchmark.RESULTS))
    options = parser.parse_args(argv)
    worst = 0
    for name in options.parts or PARTS:
        part = PARTS[name]
        file = options.file or benchmark.RESULTS / f"goals-{name}.json"
        if options.file is None:
            arguments = ["--only", part.rows, "--json", str(file), "--data", options.data]
            arguments += ["--rounds", options.rounds, "--seconds", options.seconds]
            worst = max(worst, benchmark.main([*part.targets, *arguments]))
        lines = part.table(json.loads(file.read_text()))
        README.write_text(replaced(README.read_text(), name, lines))
        print("\n".join(lines))
    return worst


if __name__ == "__main__":
    sys.exit(main())

"""Count the work of each kind of request: ``python -m benchmarks.work --help``.

Times depend on the machine and on what else it does; counts hardly do. So CI compares the counts
with those in ``counts.json``, and fails if one has risen. Whoever means a rise, or has made a count
fall, writes the file anew with ``--write``, and says why in the commit.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.servers import UnavailableError
from benchmarks.work.cases import cases
from benchmarks.work.counting import Work, count_work

COUNTS: Final = Path(__file__).parent / "counts.json"
ANEW: Final = {"KEPT_ANSWERS_BYTES": "0"}
"""The settings by which the application makes each answer anew."""
SERVERS: Final[dict[str, tuple[str, Mapping[str, str]]]] = {
    "SQLite": ("entrepot-sealed", {}),
    "SQLite, made anew": ("entrepot-sealed", ANEW),
    "PostgreSQL": ("entrepot-sealed-postgresql", {}),
    "PostgreSQL, made anew": ("entrepot-sealed-postgresql", ANEW),
}
ALLOWED: Final = Work(0, 0, steps=1, hops=1, calls=2, flushes=0, copied_bytes=1024)
"""Rises that chance alone may cause, besides those of `CHANCE`."""
ALLOWED_OF_LARGE: Final = ALLOWED._replace(steps=3, hops=3, calls=60, flushes=1)
"""The same of large bodies: how they are cut depends on who is faster, client or server."""
CHANCE: Final = 0.15
"""Part by which calls and bytes differ from run to run: on which page of the database a new row
comes to lie depends on its random id."""

Table = dict[str, dict[str, dict[str, int]]]
"""The counts by server, case and kind of work."""


def main(argv: Sequence[str] | None = None) -> int:
    """Count and print; return 1 if a count has risen, 2 if the work cannot be counted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.work", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {COUNTS.name} anew")
    parser.add_argument("--only", default="", metavar="WORDS", help="cases whose name has them")
    parser.add_argument("--server", choices=SERVERS, help="one of the servers only")
    parser.add_argument(
        "--if-possible", action="store_true", help="exit with 0 where nothing can be counted"
    )
    options = parser.parse_args(argv)
    known: Table = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    names = [options.server] if options.server else list(SERVERS)
    rises: list[str] = []
    try:
        for name in names:
            rises += _count(name, options.only, known.setdefault(name, {}), writes=options.write)
    except UnavailableError as error:
        print(f"not counted: {error}", file=sys.stderr)
        return 0 if options.if_possible else 2
    if options.write:
        COUNTS.write_text(json.dumps(known, indent=1) + "\n")
        return 0
    for rise in rises:
        print(rise, file=sys.stderr)
    return 1 if rises else 0


def _count(server: str, words: str, known: dict[str, dict[str, int]], *, writes: bool) -> list[str]:
    """Count, print, and either update `known` or return what has risen, as sentences."""
    kind, settings = SERVERS[server]
    chosen = [
        case for case in cases() if words in case.name and (case.is_kept or settings is not ANEW)
    ]
    print(f"\n{server:28}" + "".join(f"{name:>14}" for name in Work._fields))
    allowed = {case.name: ALLOWED_OF_LARGE if case.is_large else ALLOWED for case in chosen}
    rises: list[str] = []
    for name, work in count_work(kind, settings, chosen):
        print(f"{name:28}" + "".join(f"{value:14}" for value in work), flush=True)
        if writes:
            known[name] = work._asdict()
        elif name in known:
            rises += risen(f"{server}, {name}", Work(**known[name]), work, allowed[name])
        else:
            rises.append(f"{server}, {name}: not in {COUNTS.name}; run this with --write")
    return rises


def risen(what: str, known: Work, found: Work, allowed: Work = ALLOWED) -> list[str]:
    """Return a sentence for each count that is higher than the known one by more than allowed."""
    return [
        f"{what}: {now} {kind.replace('_', ' ')} a request, {before} before"
        for kind, before, now, more in zip(Work._fields, known, found, allowed, strict=True)
        if now > before + max(more, before * CHANCE * (more > 0))
    ]


if __name__ == "__main__":
    sys.exit(main())

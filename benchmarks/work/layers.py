"""Show on which layer a request spends its processor time: ``python -m benchmarks.work.layers``.

The times are those of this machine, now; their proportions and the layers' names are what a later
measurement can be compared with.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import exchanges
from benchmarks.work import sampled_server
from benchmarks.work.__main__ import ANEW, SERVERS
from benchmarks.work.cases import World, cases
from benchmarks.work.counting import running
from benchmarks.work.sampled_server import LAYERS, LOOP_THREAD, OTHER_THREADS, THREADS, Found

_WARMING_SECONDS: Final = 0.3
_COLUMNS: Final = (
    *dict.fromkeys(layer for _, layer in LAYERS),
    *dict.fromkeys(THREADS.values()),
    OTHER_THREADS,
)


def main() -> int:
    """Measure and print a table in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.work.layers", description=__doc__)
    parser.add_argument("--seconds", type=float, default=4, help="of each kind of request")
    parser.add_argument("--only", default="", metavar="WORDS", help="cases whose name has them")
    parser.add_argument("--server", choices=SERVERS, default="SQLite")
    options = parser.parse_args()
    named = [case for case in cases() if options.only in case.name]
    kind, settings = SERVERS[options.server]
    chosen = [
        case
        for case in named
        if case.is_endless and not case.is_large and (case.is_kept or settings is not ANEW)
    ]
    print("| µs of processor time | whole |", " | ".join(_COLUMNS), "|")
    print("|---|" + "---|" * (len(_COLUMNS) + 1))
    with running(kind, settings, sampled_server) as (world, file):
        for case in chosen:
            exchange = case.prepare(world)
            _repeat(world, exchange, _WARMING_SECONDS)
            _found(world, file)
            count = _repeat(world, exchange, options.seconds)
            print(f"| {case.name} |", " | ".join(_cells(_found(world, file), count)), "|")
    return 0


def _repeat(world: World, exchange: exchanges.Exchange, seconds: float) -> int:
    """Exchange for some seconds; return how often."""
    count = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        exchange(world.connection)
        count += 1
    return count


def _found(world: World, file: Path) -> Found:
    """Return what the server found since the last call."""
    file.unlink(missing_ok=True)
    os.kill(world.server.pids[0], signal.SIGUSR2)
    while not file.exists():
        time.sleep(0.01)
    return msgspec.json.decode(file.read_bytes(), type=Found)


def _cells(found: Found, count: int) -> list[str]:
    """Return the columns of a row: microseconds of one request."""
    each = {kind: seconds / count * 1e6 for kind, seconds in found.threads.items()}
    samples = sum(found.layers.values()) or 1
    layers = {layer: each[LOOP_THREAD] * number / samples for layer, number in found.layers.items()}
    whole = sum(each.values())
    return [f"{value:.0f}" for value in (whole, *({**each, **layers}.get(c, 0) for c in _COLUMNS))]


if __name__ == "__main__":
    sys.exit(main())

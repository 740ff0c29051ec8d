"""Watch the memory of a registry under mixed load, minute by minute.

    python -m benchmarks.memory_under_load                  # an hour
    python -m benchmarks.memory_under_load --minutes 12 --clients 4 --rate 50    # beside other work

Serve a registry with sign-in and sealed blobs by two workers; let clients pull, push, list, delete,
collect, ask for tokens, call ``/v1`` and read pages of the console; print the memory of all its
processes each minute. Exit with 1 if the last ten minutes hold more than `GROWTH` times what the
first five ended with.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.bodies import BodyMaker
from benchmarks.memory_load import Clients
from benchmarks.processes import MIB, parts_bytes, process_tree, proportional_bytes
from benchmarks.servers import KINDS, Server, UnavailableError
from benchmarks.target import Target
from benchmarks.wire import ExchangeFailedError

GROWTH: Final = 1.25
FIRST_MINUTES: Final = 5
LAST_MINUTES: Final = 10


class Sample(NamedTuple):
    """The memory of a registry's processes."""

    minute: int
    proportional: int
    """Bytes, a page that n processes share counting 1/n; pages of files count too."""
    parts: dict[str, int]
    """The same by what it is: the heap, other anonymous memory, files."""
    largest: int
    """That of the largest process."""
    exchanges: int

    def __str__(self) -> str:
        sizes = (self.proportional, self.largest, *self.parts.values())
        shown = " ".join(f"{each / MIB:9.1f}" for each in sizes)
        return f"{self.minute:6} {shown} {self.exchanges:10}"


def watch(server: Server, clients: Clients, minutes: int) -> list[Sample]:
    """Run the load for so many minutes, and print the memory after each; return the samples."""
    root = server.pids[0]
    print("minute   PSS MiB   largest      heap     other     files  exchanges", flush=True)
    clients.start()
    began = time.monotonic()
    samples = []
    try:
        for minute in itertools.count(1):
            clients.wait(max(0.0, began + minute * 60 - time.monotonic()))
            samples.append(_sample(root, minute, clients.exchanges))
            print(samples[-1], flush=True)
            if minute == minutes or clients.failures:
                break
    finally:
        clients.stop()
    if clients.failures:
        raise clients.failures[0]
    return samples


def _show(when: str, server: Server) -> None:
    found = sum(map(proportional_bytes, process_tree(server.pids[0])))
    print(f"{when:14} {found / MIB:8.1f}", flush=True)


def _sample(root: int, minute: int, done: int) -> Sample:
    each = [parts_bytes(pid) for pid in process_tree(root)]
    parts = {name: sum(one[name] for one in each) for name in each[0]}
    return Sample(minute, sum(parts.values()), parts, max(sum(one.values()) for one in each), done)


def growth(samples: Sequence[Sample]) -> float:
    """Return the median memory of the last minutes by that after the first five."""
    first = samples[min(FIRST_MINUTES, len(samples)) - 1]
    last = samples[-min(LAST_MINUTES, max(1, len(samples) // 3)) :]
    return statistics.median(sample.proportional for sample in last) / first.proportional


def main(argv: Sequence[str] | None = None) -> int:
    """Run the measurement; return the exit status."""
    name = "python -m benchmarks.memory_under_load"
    parser = argparse.ArgumentParser(prog=name, description=__doc__)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rate", type=float, default=0, help="most exchanges a second")
    parser.add_argument("--kind", choices=sorted(KINDS), default="entrepot-sealed")
    parser.add_argument("--only", default="", metavar="WORDS", help="kinds of load: pulls,pushes,…")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="entrepot-memory-") as folder:
        kind = KINDS[options.kind]
        server = Server(kind, Path(folder) / "registry", options.workers)
        target = Target(options.kind, kind.notes, BodyMaker(), "dev", lambda _: None, server)
        server.repositories = (target.repository,)
        try:
            server.start(lambda: _show("not asked yet", server))
            _show("signed in", server)
            only = options.only.split(",") if options.only else None
            clients = Clients(target, options.clients, options.rate, only)
            samples = watch(server, clients, options.minutes)
        except (OSError, ExchangeFailedError, UnavailableError) as error:
            print(f"cannot be measured: {error}", file=sys.stderr)
            return 2
        finally:
            server.stop()
    grown = growth(samples)
    print(f"growth since the first {FIRST_MINUTES} minutes: {grown:.2f} (at most {GROWTH})")
    return int(grown > GROWTH)


if __name__ == "__main__":
    sys.exit(main())

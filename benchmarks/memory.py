"""Watch the memory of a registry under mixed load.

    python -m benchmarks.memory                  # five minutes
    python -m benchmarks.memory --minutes 60 --clients 4 --rate 50    # beside other work

Serve a registry with sign-in and sealed blobs; let clients pull, push, list, delete and collect;
print the memory of all its processes from time to time. Exit with 1 if it has grown by more than
`GROWTH` from the second third of the time to the last.
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
from benchmarks.processes import MIB, private_bytes, process_tree, proportional_bytes
from benchmarks.servers import KINDS, Server, UnavailableError
from benchmarks.target import Target
from benchmarks.wire import ExchangeFailedError

GROWTH: Final = 1.10
LINES: Final = 20
"""Lines that are printed, whatever the time."""


class Sample(NamedTuple):
    """The memory of all processes of a registry."""

    seconds: float
    proportional: int
    """Bytes, a page that n processes share counting 1/n; pages of the database's file count too."""
    private: int
    """Bytes that one process alone has written."""
    exchanges: int

    def __str__(self) -> str:
        minutes, seconds = divmod(round(self.seconds), 60)
        sizes = f"{self.proportional / MIB:8.1f} {self.private / MIB:8.1f}"
        return f"{minutes:4}:{seconds:02} {sizes} {self.exchanges:10}"


def watch(server: Server, clients: Clients, seconds: float) -> list[Sample]:
    """Run the load for `seconds`, and print the memory; return the samples."""
    root = server.pids[0]
    print("  time  PSS MiB  private  exchanges", flush=True)
    clients.start()
    began = time.monotonic()
    samples = []
    try:
        for line in itertools.count(1):
            time.sleep(max(0.0, began + line * seconds / LINES - time.monotonic()))
            samples.append(_sample(root, time.monotonic() - began, clients.exchanges))
            print(samples[-1], flush=True)
            if line == LINES or clients.failures:
                break
    finally:
        clients.stop()
    if clients.failures:
        raise clients.failures[0]
    return samples


def _show(when: str, server: Server) -> None:
    found = sum(map(proportional_bytes, process_tree(server.pids[0])))
    print(f"{when:14} {found / MIB:8.1f}", flush=True)


def _sample(root: int, seconds: float, done: int) -> Sample:
    pids = process_tree(root)
    return Sample(seconds, sum(map(proportional_bytes, pids)), sum(map(private_bytes, pids)), done)


def growth(samples: Sequence[Sample]) -> float:
    """Return the median memory of the last third, as a multiple of that of the second third.

    The first third does not count: caches fill.
    """
    third = len(samples) // 3
    late, middle = (
        statistics.median(sample.proportional for sample in part)
        for part in (samples[-third:], samples[-2 * third : -third])
    )
    return late / middle


def main(argv: Sequence[str] | None = None) -> int:
    """Run the measurement; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rate", type=float, default=0, help="most exchanges a second")
    parser.add_argument("--kind", choices=sorted(KINDS), default="entrepot-sealed")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="entrepot-memory-") as folder:
        kind = KINDS[options.kind]
        server = Server(kind, Path(folder) / "registry", options.workers)
        target = Target(options.kind, kind.notes, BodyMaker(), "dev", lambda _: None, server)
        server.repositories = (target.repository,)
        try:
            server.start(lambda: _show("not asked yet", server))
            _show("signed in", server)
            clients = Clients(target, options.clients, options.rate)
            samples = watch(server, clients, options.minutes * 60)
        except (OSError, ExchangeFailedError, UnavailableError) as error:
            print(f"cannot be measured: {error}", file=sys.stderr)
            return 2
        finally:
            server.stop()
    grown = growth(samples)
    print(f"growth from the middle third to the last: {grown:.2f} (at most {GROWTH})")
    return int(grown > GROWTH)


if __name__ == "__main__":
    sys.exit(main())

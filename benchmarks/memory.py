"""Watch the memory of a registry under mixed load.

    python -m benchmarks.memory                  # five minutes
    python -m benchmarks.memory --minutes 60

Serve a registry with sign-in and sealed blobs; let clients pull, push and list; print the memory of
all its processes from time to time. Exit with 1 if it has grown by more than `GROWTH` from the
second third of the time to the last.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import exchanges
from benchmarks.bodies import BodyMaker
from benchmarks.processes import MIB, private_bytes, process_tree, proportional_bytes
from benchmarks.servers import KINDS, Server, UnavailableError
from benchmarks.target import KIB, Target
from benchmarks.wire import Connection, ExchangeFailedError

GROWTH: Final = 1.10
LINES: Final = 20
"""Lines that are printed, whatever the time."""
CONNECTION_EXCHANGES: Final = 200
"""Exchanges on one connection; the next has another bearer if the old one is about to end."""
KEPT_TAGS: Final = 200
"""Tags that pushes take in turn, so that manifests lose theirs, and lists stay as long."""


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


class Clients:
    """Threads that do exchanges of all kinds until they are told to stop."""

    def __init__(self, target: Target, count: int) -> None:
        self.exchanges = 0
        self.failures: list[Exception] = []
        self._target = target
        self._stopping = threading.Event()
        self._make_manifest = target.manifest_maker(target.repository)
        self._small, self._large = target.blobs(4 * KIB), target.blobs(MIB)
        self._manifests = target.manifests()
        self._threads = [
            threading.Thread(target=self._run, args=(number,)) for number in range(count)
        ]

    def start(self) -> None:
        """Start all clients."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let all clients end."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self, seed: int) -> None:
        chosen = random.Random(seed)
        acts, weights = zip(*self._acts(), strict=True)
        try:
            while not self._stopping.is_set():
                with self._target.connect() as connection:
                    for _ in range(CONNECTION_EXCHANGES):
                        (act,) = chosen.choices(acts, weights)
                        act(connection, chosen)
                        self.exchanges += 1
                        if self._stopping.is_set():
                            return
        except (OSError, ExchangeFailedError) as error:
            self.failures.append(error)
            self._stopping.set()

    def _acts(self) -> Iterator[tuple[Callable[[Connection, random.Random], object], int]]:
        """Yield the exchanges, each with how often it is done."""
        repository, maker = self._target.repository, self._target.maker
        accepted = exchanges.ACCEPT_MANIFEST

        def get(path: str, *headers: str) -> Callable[[Connection, random.Random], object]:
            return lambda connection, _: exchanges.read(connection, path, *headers)

        def pull_manifest(connection: Connection, chosen: random.Random) -> None:
            stored = chosen.choice(self._manifests)
            reference = chosen.choice((stored.tag, stored.digest))
            exchanges.read(connection, f"/v2/{repository}/manifests/{reference}", accepted)

        def pull(digests: Sequence[str]) -> Callable[[Connection, random.Random], object]:
            def pull_one(connection: Connection, chosen: random.Random) -> None:
                digest = chosen.choice(digests)
                exchanges.verify(connection, f"/v2/{repository}/blobs/{digest}", digest)

            return pull_one

        def push(size: int) -> Callable[[Connection, random.Random], object]:
            return lambda connection, _: exchanges.push_streamed(
                connection, repository, maker, size
            )

        def push_manifest(connection: Connection, chosen: random.Random) -> None:
            tag = f"m{chosen.randrange(KEPT_TAGS)}"
            exchanges.put_manifest(connection, repository, tag, self._make_manifest())

        yield pull_manifest, 400
        yield pull(self._small), 100
        yield pull(self._large), 30
        yield get(f"/v2/{repository}/tags/list?n=100"), 20
        yield get("/readyz"), 5
        yield push(4 * KIB), 40
        yield push(MIB), 5
        yield push(32 * MIB), 1
        yield push_manifest, 40


def watch(server: Server, target: Target, count: int, seconds: float) -> list[Sample]:
    """Run the load for `seconds`, and print the memory; return the samples."""
    root = server.pids[0]
    fresh = sum(map(proportional_bytes, process_tree(root)))
    print(f"fresh  {fresh / MIB:8.1f}\n  time  PSS MiB  private  exchanges", flush=True)
    clients = Clients(target, count)
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
    parser.add_argument("--kind", choices=sorted(KINDS), default="entrepot-sealed")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="entrepot-memory-") as folder:
        kind = KINDS[options.kind]
        server = Server(kind, Path(folder) / "registry", options.workers)
        target = Target(options.kind, kind.notes, BodyMaker(), "dev", lambda _: None, server)
        server.repositories = (target.repository,)
        try:
            server.start()
            samples = watch(server, target, options.clients, options.minutes * 60)
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

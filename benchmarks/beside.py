"""Pulls of one account beside the largest inputs of another: ``python -m benchmarks.beside``.

A registry with two workers, over SQLite, or with ``--database postgresql`` over a PostgreSQL that
is started for it. Each load is one piece of work that is done outside the event loop, by twelve
connections at once, each sending its largest input again and again; meanwhile clients of another
account pull small blobs. Before each, as many connections send small requests that are refused. The
exit status is 1 if the 99th percentile of the pulls beside a load is above 100 ms, and above twice
what it is beside small requests: a machine with other work is slow by itself.
"""

from __future__ import annotations

import argparse
import http.client
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from benchmarks.beside_loads import LOADS, SMALL, Asked, World
from benchmarks.load import percentile
from benchmarks.scale_stores import postgresql
from benchmarks.servers import free_port
from registry.metadata.database import migrate
from tests.live_signed_in import serving

LIMIT_MS: Final = 100.0
CONNECTIONS: Final = 12
PULLERS: Final = 4
_PAUSE_SECONDS: Final = 0.002
_REFUSED_SECONDS: Final = 0.05
"""How long who is refused for now (429, 503) waits: less than it is told."""
_NICENESS: Final = 10
"""Of who sends the load: on another machine, it would take no processor time from the server."""
_SETTINGS: Final[Mapping[str, str]] = {"ENTREPOT_CERTIFICATE_GRANTS": "bench.test=*"}


class Measured(NamedTuple):
    """How long the neighbour's pulls took while something was done, and what that was answered."""

    p50_ms: float
    p99_ms: float
    most_ms: float
    pulls: int
    answers: Mapping[int, int]
    """How many of the load's requests got each status; 0: the connection was closed."""

    def __str__(self) -> str:
        answered = ", ".join(
            f"{count} x {status}" for status, count in sorted(self.answers.items())
        )
        return (
            f"{self.p50_ms:8.1f} {self.p99_ms:8.1f} {self.most_ms:8.1f} {self.pulls:7}   {answered}"
        )


@contextmanager
def world(data: Path, database: str | None = None) -> Iterator[World]:
    """Serve two accounts for the block, of which the neighbour has something to pull.

    Over the migrated `database`, or SQLite in the data folder.
    """
    port = free_port()
    options = ("--workers", "2", "--s3-port", str(port))
    with serving(data, *options, settings=lambda _: _SETTINGS, database=database) as signed_in:
        found = World(signed_in, port)
        found.prepare()
        yield found


def measure(found: World, load: str | None, seconds: float) -> Measured:
    """Let the neighbour pull for some seconds, beside a load."""
    told = multiprocessing.get_context("fork").SimpleQueue()
    stopping = multiprocessing.get_context("fork").Event()
    ask = LOADS[load](found) if load is not None else None
    beside = []
    if ask is not None:
        beside = [
            multiprocessing.get_context("fork").Process(
                target=_press, args=(found, ask, number, stopping, told), daemon=True
            )
            for number in range(2)
        ]
    for each in beside:
        each.start()
    try:
        taken = _pull(found, seconds)
    finally:
        stopping.set()
    answers: Counter[int] = Counter()
    for each in beside:
        answers.update(told.get())
        each.join(60)
    ordered = sorted(1000 * each for each in taken)
    return Measured(
        statistics.median(ordered), percentile(ordered, 99), ordered[-1], len(ordered), answers
    )


def _pull(found: World, seconds: float) -> list[float]:
    """Return how long each pull of the neighbour's clients took, in seconds."""
    taken: list[float] = []
    end = time.monotonic() + seconds

    def run(number: int) -> None:
        connection = found.neighbour()
        for turn in range(1 << 30):
            if time.monotonic() > end:
                break
            time.sleep(_PAUSE_SECONDS)
            began = time.perf_counter()
            found.pull(connection, turn + number)
            taken.append(time.perf_counter() - began)
        connection.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(PULLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return taken


def _press(found: World, ask: Asked, process: int, stopping: threading.Event, told: object) -> None:
    """Send a load's requests on half of the connections, and tell how they were answered."""
    os.nice(_NICENESS)
    answers: Counter[int] = Counter()

    def run(number: int) -> None:
        turn = 0
        request = ask(number, turn)
        connection = _connection(request.url or found.url)
        while not stopping.is_set():
            request = ask(number, turn)
            turn += 1
            try:
                connection.request(request.method, request.path, request.body, request.headers)
                answer = connection.getresponse()
                answer.read()
                answers[answer.status] += 1
                if answer.status in (429, 503):
                    time.sleep(_REFUSED_SECONDS)
            except (OSError, http.client.HTTPException):
                answers[0] += 1
                connection.close()
                connection = _connection(request.url or found.url)

    half = CONNECTIONS // 2
    threads = [
        threading.Thread(target=run, args=(process * half + number,)) for number in range(half)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told.put(dict(answers))  # type: ignore[attr-defined]


def _connection(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    assert parts.hostname is not None
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=120)


@contextmanager
def _database(kind: str) -> Iterator[str | None]:
    """Return the URL of an empty database of PostgreSQL for the block; None for SQLite."""
    if kind == "sqlite":
        yield None
        return
    with postgresql() as server:
        url = server.create("beside").url
        migrate(url)
        yield url


def run(
    loads: Sequence[str], seconds: float, tell: Callable[[str], object], kind: str = "sqlite"
) -> list[str]:
    """Measure loads in turn; return those beside which the neighbour waited too long.

    `kind` is of the database: ``sqlite`` or ``postgresql``.
    """
    late = []
    with (
        tempfile.TemporaryDirectory() as folder,
        _database(kind) as database,
        world(Path(folder) / "data", database) as found,
    ):
        tell(f"{kind}; load average {os.getloadavg()[0]:.1f} before")
        tell(f"{'beside':22} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8} {'pulls':>7}   answers")
        for load in loads:
            tell(f"{'nothing':22} {measure(found, None, seconds / 4)}")
            small = measure(found, SMALL, seconds / 2)
            tell(f"{SMALL:22} {small}")
            beside = measure(found, load, seconds)
            tell(f"{load:22} {beside}")
            if beside.p99_ms > max(LIMIT_MS, 2 * small.p99_ms):
                late.append(load)
    return late


def main() -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each load")
    parser.add_argument("--only", choices=LOADS, action="append", help="may be given several times")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    options = parser.parse_args()

    def tell(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    loads = options.only or [each for each in LOADS if each != SMALL]
    late = run(loads, options.seconds, tell, options.database)
    for load in late:
        tell(f"too late beside: {load}")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())

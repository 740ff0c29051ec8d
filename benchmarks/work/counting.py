"""Counts the work of exchanges with one kind of server."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

from benchmarks import exchanges
from benchmarks.bodies import BodyMaker
from benchmarks.servers import KINDS, Server, UnavailableError
from benchmarks.work import counted_server
from benchmarks.work.cases import REPOSITORY, SOURCE, Case, World
from benchmarks.work.counted_server import Counters
from benchmarks.work.system_calls import traced

_BATCHES: Final = 3
_WARMING: Final = 3
"""Exchanges before the first batch: they fill caches and start threads."""


class Work(NamedTuple):
    """The work of one exchange, on average."""

    statements: int
    """That SQLite ran, with those that begin and end a transaction; 0 on PostgreSQL."""
    tasks: int
    steps: int
    hops: int
    """From another thread to the event loop."""
    calls: int
    """Of the kernel, without those that only wait."""
    flushes: int
    copied_bytes: int
    """Between the kernel and the server's process."""


def count_work(
    kind_name: str, settings: Mapping[str, str], chosen: Sequence[Case]
) -> Iterator[tuple[str, Work]]:
    """Run a server of one worker; yield the name and the work of each case.

    Raises:
        UnavailableError: the server cannot be started, or strace may not watch it.

    """
    if shutil.which("strace") is None:
        raise UnavailableError("strace is not installed; on Debian: apt-get install strace")
    with running(kind_name, settings, counted_server) as (world, file):
        counters = Counters(file)
        for case in chosen:
            yield case.name, _work(case, world, counters)


@contextmanager
def running(
    kind_name: str, settings: Mapping[str, str], program: ModuleType
) -> Iterator[tuple[World, Path]]:
    """Run a server of one worker by a program that watches it, and yield the program's file."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="work-")))
        file = folder / "watched"

        def command(data: Path, port: int, workers: int) -> list[str]:
            options = ["--port", str(port), "--data", str(data), "--workers", str(workers)]
            return [sys.executable, str(program.__file__), str(file), "serve", *options]

        kind = replace(KINDS[kind_name], command=command)
        server = Server(kind, folder / "server", 1, settings)
        server.repositories = (REPOSITORY, SOURCE)
        stack.callback(server.stop)
        server.start()
        world = World(server, BodyMaker())
        stack.enter_context(closing(world.connection))
        yield world, file


def _work(case: Case, world: World, counters: Counters) -> Work:
    """Return the least work of some batches: chores that run beside one only add to it."""
    exchange = case.prepare(world)
    for _ in range(_WARMING):
        exchange(world.connection)
    batches = [_batch(case, world, exchange, counters) for _ in range(_BATCHES)]
    return Work(*map(min, zip(*batches, strict=True)))


def _batch(case: Case, world: World, exchange: exchanges.Exchange, counters: Counters) -> Work:
    with traced(world.server.pids[0]) as trace:
        before = counters.read()
        for _ in range(case.times):
            exchange(world.connection)
        after = counters.read()
    totals = (*(late - early for early, late in zip(before, after, strict=True)), *trace.found)
    return Work(*(round(total / case.times) for total in totals))

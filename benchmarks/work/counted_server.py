"""Run ``entrepot`` with counters of what one cannot see from outside.

    python -m benchmarks.work.counted_server FILE serve --port 5000 …

It counts the statements that SQLite runs, the tasks of the event loop and their steps, and the
calls from other threads to the loop. The counters are in FILE, which the process maps, so that
counting makes no system call. `Counters` reads them.
"""

from __future__ import annotations

import mmap
import os
import sqlite3
import struct
import sys
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final, NamedTuple

import uvloop

_FORM: Final = struct.Struct("@4Q")


class Counts(NamedTuple):
    """What the process has done so far."""

    statements: int
    """That SQLite ran, with those that begin and end a transaction."""
    tasks: int
    """That were started on the event loop."""
    steps: int
    """Of tasks: each begins when the loop calls the task, and ends when it waits."""
    hops: int
    """Calls from another thread to the loop: a result of work in a thread."""


class Counters:
    """Counters in a file that two processes map."""

    def __init__(self, path: Path) -> None:
        """Map the file; make it if it does not exist."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.truncate(descriptor, mmap.PAGESIZE)
        self._memory = mmap.mmap(descriptor, mmap.PAGESIZE)
        os.close(descriptor)
        self._words = memoryview(self._memory).cast("Q")
        self._lock = threading.Lock()

    def read(self) -> Counts:
        """Return the counters."""
        return Counts(*_FORM.unpack_from(self._memory))

    def add(self, name: str) -> None:
        """Count one."""
        with self._lock:
            self._words[Counts._fields.index(name)] += 1


class _CountedCoroutine(Coroutine[Any, Any, Any]):
    """Counts the steps of a task."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], counters: Counters) -> None:
        self._coroutine = coroutine
        self._counters = counters

    def send(self, value: Any) -> Any:  # noqa: ANN401 - the interface's own signature
        self._counters.add("steps")
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:  # noqa: ANN401
        self._counters.add("steps")
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Any:  # noqa: ANN401
        return self._coroutine.__await__()


def _count_statements(counters: Counters) -> None:
    connect = sqlite3.connect

    def counted(*args: Any, **options: Any) -> sqlite3.Connection:  # noqa: ANN401
        connection: sqlite3.Connection = connect(*args, **options)
        connection.set_trace_callback(lambda _: counters.add("statements"))
        return connection

    sqlite3.connect = counted  # type: ignore[assignment]


def _count_tasks(counters: Counters) -> None:
    class CountedLoop(uvloop.Loop):
        def create_task(self, coro: Any, **options: Any) -> Any:  # noqa: ANN401
            counters.add("tasks")
            return super().create_task(_CountedCoroutine(coro, counters), **options)

        def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override] # noqa: ANN401
            counters.add("hops")
            return super().call_soon_threadsafe(callback, *args, context=context)

    uvloop.Loop = CountedLoop  # type: ignore[misc]


def main() -> int:
    """Run the command with counters."""
    counters = Counters(Path(sys.argv.pop(1)))
    _count_statements(counters)
    _count_tasks(counters)
    from registry.cli.main import main as command  # noqa: PLC0415 - it must see what is counted

    return command()


if __name__ == "__main__":
    sys.exit(main())

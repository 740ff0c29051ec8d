"""Make blocking calls in threads, without blocking the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Final, Protocol, TypeVar, TypeVarTuple, Unpack
from weakref import WeakSet

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_AT_ONCE: Final = 6
"""Calls at once of one use: they wait for the disk more than they compute."""
_BATCH: Final = 500
"""Entries of a listing that are read in one call."""


class Runner(Protocol):
    """Make a blocking call without blocking the event loop."""

    async def __call__(
        self,
        call: Callable[[Unpack[Ts]], T],
        /,
        *arguments: *Ts,
        undo: Callable[[T], None] | None = None,
    ) -> T:
        """Return the result of the call.

        If the caller is cancelled, wait for the call to end, since the caller closes files that the
        call uses; pass its result to `undo`, and raise CancelledError.
        """
        ...


class Threads:
    """Some threads of one use, that no other use can fill (`Runner`).

    They start with the first call, and end with `close`; a call after it starts others.
    """

    def __init__(self, name: str, at_once: int = _AT_ONCE) -> None:
        self._name = name
        self._at_once = at_once
        self._pool: ThreadPoolExecutor | None = None
        _every.add(self)

    async def __call__(
        self,
        call: Callable[[Unpack[Ts]], T],
        /,
        *arguments: *Ts,
        undo: Callable[[T], None] | None = None,
    ) -> T:
        """Call in one of the threads."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._at_once, self._name)
        running = asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            while not running.done():
                try:
                    await asyncio.wait((running,))
                except asyncio.CancelledError:
                    continue
            if running.exception() is None and undo is not None:
                undo(running.result())
            raise

    def forget(self) -> None:
        """Start other threads with the next call: a fork does not copy them."""
        self._pool = None

    def close(self) -> None:
        """Wait for the calls under way, and end the threads. Blocks."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()


_every: Final[WeakSet[Threads]] = WeakSet()


def _forget_all() -> None:
    for each in _every:
        each.forget()


os.register_at_fork(after_in_child=_forget_all)


async def each_of(run: Runner, entries: Iterator[T]) -> AsyncIterator[T]:
    """Yield the entries of a blocking listing, read by `run` in batches."""
    while batch := await run(_next_entries, entries):
        for entry in batch:
            yield entry


def _next_entries(entries: Iterator[T]) -> list[T]:
    return list(islice(entries, _BATCH))

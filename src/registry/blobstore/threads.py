"""Calls that block, made in a thread so that the event loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from typing import Final, Protocol, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_BATCH: Final = 500
"""How many entries of a listing are read in one call."""


class Runner(Protocol):
    """Makes a call that blocks; the caller waits without holding up the event loop."""

    async def __call__(
        self,
        call: Callable[[Unpack[Ts]], T],
        /,
        *arguments: *Ts,
        undo: Callable[[T], None] | None = None,
    ) -> T:
        """Return what the call returns.

        Cancellation is raised only when the call has ended: its caller closes files that it would
        otherwise go on using. Then `undo` is given what the call returned, and nobody else is.
        """
        ...


async def in_thread(
    call: Callable[[Unpack[Ts]], T],
    /,
    *arguments: *Ts,
    undo: Callable[[T], None] | None = None,
) -> T:
    """Call in a thread of the event loop's pool (`Runner`)."""
    running = asyncio.get_running_loop().run_in_executor(None, call, *arguments)
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


async def at_once(
    call: Callable[[Unpack[Ts]], T],
    /,
    *arguments: *Ts,
    undo: Callable[[T], None] | None = None,  # noqa: ARG001 - it cannot be cancelled
) -> T:
    """Call here and now: for what does not block (`Runner`)."""
    return call(*arguments)


async def each_of(run: Runner, entries: Iterator[T]) -> AsyncIterator[T]:
    """Yield the entries of a listing that blocks, read by `run` some at a time."""
    while batch := await run(_next_entries, entries):
        for entry in batch:
            yield entry


def _next_entries(entries: Iterator[T]) -> list[T]:
    return list(islice(entries, _BATCH))

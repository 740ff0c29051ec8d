"""Wait until something has come about that others do, which tell nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(
    found: Callable[[], T],
    words: str | Callable[[], object] = "it has not come about",
    *,
    seconds: float = 50,
    pause: float = 0.02,
) -> T:
    """Return what is found, as soon as that is true; `words` say what is wrong if it never is.

    It gives up before the time limit of a test does, which would not say what was awaited. A test
    with a longer limit, which waits for whole programs, may ask for more `seconds`.

    It looks after a millisecond, then less and less often, at last after each `pause` of seconds,
    or after a fiftieth of the time that it has waited: a look takes the processors of others.
    """
    begun, wait = time.monotonic(), min(0.001, pause)
    while not (last := found()):
        waited = time.monotonic() - begun
        assert waited < seconds, words() if callable(words) else words
        time.sleep(wait)
        wait = min(2 * wait, max(pause, waited / 50))
    return last


async def until_so(
    holds: Callable[[], object],
    words: str | Callable[[], object] = "it has not come about",
    *,
    seconds: float = 50,
) -> None:
    """Return when something is so; `words` say what is wrong if it never is."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, words() if callable(words) else words
        await asyncio.sleep(0.01)  # the processors are of those who bring it about


async def close_server(server: asyncio.Server) -> None:
    """Take no further connection, let those that were taken become tasks, and close a server.

    One that was taken in the same turn of the loop would find no server any more, which fails in
    `asyncio` and leaves its socket to the collector of garbage: that warns of it in any test.
    """
    loop = asyncio.get_running_loop()
    for each in server.sockets:
        loop.remove_reader(each.fileno())
    await turns()
    server.close()


async def turns() -> None:
    """Let a loop hand over what was accepted, or close what was aborted: both take some turns."""
    for _ in range(10):
        await asyncio.sleep(0)

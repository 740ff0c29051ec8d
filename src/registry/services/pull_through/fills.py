"""The fills that readers of this process wait for: one per account and digest, whoever asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from cloudcore.errors import Unavailable
from registry.services.pull_through.feed import Feed

_MOST_AT_ONCE: Final = 64
"""Fills of one process at once; each has a few MiB in memory."""


class Fills:
    """The feeds of one process, each with the task that brings its bytes.

    The first reader starts it, and none is needed to go on.
    """

    def __init__(self) -> None:
        self._running: dict[tuple[str, str], tuple[Feed, asyncio.Task[None]]] = {}

    def join(
        self, account_id: str, digest: str, run: Callable[[Feed], Coroutine[Any, Any, None]]
    ) -> Feed:
        """Return the feed of a blob; `run` it, unless that was begun.

        Raises:
            Unavailable: too many blobs are being fetched.

        """
        key = account_id, digest
        if key in self._running:
            return self._running[key][0]
        if len(self._running) >= _MOST_AT_ONCE:
            raise Unavailable("too many blobs are being fetched at once", retry_after=5)
        feed = Feed()
        task = asyncio.create_task(run(feed))
        self._running[key] = feed, task
        task.add_done_callback(lambda _: self._running.pop(key))
        return feed

    async def settled(self) -> None:
        """Wait until nothing is fetched of what is fetched now."""
        tasks = [task for _, task in self._running.values()]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def aclose(self) -> None:
        """Break off all fills; another worker, or a later process, goes on with them."""
        for _, task in self._running.values():
            task.cancel()
        await self.settled()

"""The fills that readers of this process wait for: one per repository and digest.

Two repositories that want the same blob do not share one: what the upstream of one has, that of the
other may not have. The second fill follows the first, once its own upstream has said so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final

from cloudcore.errors import Unavailable
from registry.services.pull_through.feed import Feed
from registry.services.pull_through.turns import Turns

_TURN_SECONDS: Final = 30
"""How long a fill waits for its turn."""


class Fills:
    """The feeds of one process, each with the task that brings its bytes.

    The first reader starts it, and none is needed to go on.
    """

    def __init__(self) -> None:
        self._running: dict[tuple[str, Hashable], tuple[Feed, asyncio.Task[None]]] = {}
        self._turns = Turns(_TURN_SECONDS)

    def join(
        self, account_id: str, blob: Hashable, run: Callable[[Feed], Coroutine[Any, Any, None]]
    ) -> Feed:
        """Return the feed of a `blob` of some repository; `run` it in its turn, unless that began.

        The feed fails if too many blobs are being fetched for long.
        """
        key = account_id, blob
        if key in self._running:
            return self._running[key][0]
        feed = Feed()
        task = asyncio.create_task(self._run(account_id, feed, run))
        self._running[key] = feed, task
        task.add_done_callback(lambda _: self._end(key))
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

    async def _run(
        self, account_id: str, feed: Feed, run: Callable[[Feed], Coroutine[Any, Any, None]]
    ) -> None:
        try:
            async with self._turns.turn(account_id):
                await run(feed)
        except Unavailable as error:
            feed.fail(error)

    def _end(self, key: tuple[str, Hashable]) -> None:
        feed, _ = self._running.pop(key)
        feed.fail(Unavailable("the fetch was broken off; try again", retry_after=5))

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
from registry.services.pull_through.fill_pace import PACE_LIMITS, PaceLimits
from registry.services.pull_through.fill_source import Source
from registry.services.pull_through.turns import Turns

_TURN_SECONDS: Final = 30
"""How long a fill waits for its turn."""


class Fills:
    """The feeds of one process, each with the task that brings its bytes.

    The first reader starts it. It goes on for a while without one (`fill_pace`).
    """

    def __init__(self, limits: PaceLimits = PACE_LIMITS) -> None:
        """Let upstreams be as slow as the limits say."""
        self.limits = limits
        self._running: dict[tuple[str, Hashable], Feed] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = Turns(_TURN_SECONDS)

    def join(
        self,
        source: Source,
        run: Callable[[Feed], Coroutine[Any, Any, None]],
    ) -> Feed:
        """Return the feed of a repository's blob; `run` it in its turn, unless that began.

        The feed fails if too many blobs are being fetched for long.
        """
        key = source.repository_id, source.key
        feed = self._running.get(key)
        if feed is not None and not feed.is_given_up:
            return feed
        feed = self._running[key] = Feed()
        task = asyncio.create_task(self._run(source, feed, run))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._end(key, feed, done))
        return feed

    async def settled(self) -> None:
        """Wait until the present fetches have ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def aclose(self) -> None:
        """Break off all fills; another worker, or a later process, goes on with them."""
        for task in self._tasks:
            task.cancel()
        await self.settled()

    async def _run(
        self, source: Source, feed: Feed, run: Callable[[Feed], Coroutine[Any, Any, None]]
    ) -> None:
        is_listed = source.size is not None
        try:
            async with self._turns.turn(
                source.account_id, source.remote.origin, is_listed=is_listed
            ):
                await run(feed)
        except Unavailable as error:
            feed.fail(error)

    def _end(self, key: tuple[str, Hashable], feed: Feed, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._running.get(key) is feed:
            del self._running[key]
        feed.fail(Unavailable("the fetch was broken off; try again", retry_after=5))

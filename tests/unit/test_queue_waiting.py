"""Who waits for messages is checked before it gets any, and woken in another's place."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from cloudcore.db.base import Database
from cloudcore.errors import AccessDenied
from cloudcore.queue.long_polling import Consumers

NOW = 1_750_000_000_000_000
LONG = 3600


class NoDatabase:
    """Commits nothing, so those who wait are woken by signals alone."""

    def listen(self, listener: Callable[[], None]) -> None:
        pass

    def version(self) -> int | None:
        return 1


class Messages:
    """A queue in memory."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        database = cast("Database", NoDatabase())
        self.consumers = Consumers(database, lambda: NOW)
        self.checked = 0
        self.left = asyncio.Event()
        """Set when those who wait have left."""

    def lease(self, seconds: float = LONG, *, allowed: bool = True) -> Awaitable[list[str]]:
        async def due_at() -> int | None:
            return NOW if self.waiting else None

        async def check() -> None:
            self.checked += 1
            await asyncio.sleep(0)
            if not allowed:
                raise AccessDenied("no longer")

        async def take() -> list[str]:
            return [self.waiting.pop()]

        async def leave() -> None:
            await self.left.wait()

        return self.consumers.wait_for("queue", seconds, due_at, check, take, leave)


async def test_only_a_lease_that_has_waited_is_checked() -> None:
    queue = Messages()
    queue.waiting.append("a")
    assert await queue.lease() == ["a"]
    assert await queue.lease(0) == []
    assert queue.checked == 0
    waits = asyncio.ensure_future(queue.lease())
    await asyncio.sleep(0.01)
    queue.waiting.append("b")
    queue.consumers.notify("queue", 1)
    assert await waits == ["b"]
    assert queue.checked == 1


async def test_who_has_left_takes_nothing() -> None:
    queue = Messages()
    waits = asyncio.ensure_future(queue.lease())
    await asyncio.sleep(0.01)
    queue.left.set()
    assert await waits == []
    queue.waiting.append("a")
    assert await queue.lease() == ["a"], "what is there is had at once"


async def test_what_one_may_no_longer_have_wakes_the_next() -> None:
    queue = Messages()
    former = asyncio.ensure_future(queue.lease(allowed=False))
    await asyncio.sleep(0.01)
    other = asyncio.ensure_future(queue.lease())
    await asyncio.sleep(0.01)
    queue.waiting.append("a")
    queue.consumers.notify("queue", 1)
    with pytest.raises(AccessDenied):
        await former
    assert await other == ["a"]


async def test_a_commit_that_may_have_sent_anything_wakes_all_who_wait() -> None:
    queue = Messages()
    waits = [asyncio.ensure_future(queue.lease()) for _ in range(2)]
    await asyncio.sleep(0.01)
    queue.waiting += ["a", "b"]
    queue.consumers.notify_all()
    assert sorted(await asyncio.gather(*waits)) == [["a"], ["b"]]

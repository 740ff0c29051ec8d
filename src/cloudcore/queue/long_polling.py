"""Wait for messages without a transaction and without polling the database.

A send in this process wakes the consumers of its queue. Commits of other processes are detected
through the database's version, whose check takes microseconds: the queue is read only when the
version has changed. So a thousand waiting consumers of quiet queues cost next to nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Database

T = TypeVar("T")

POLL_SECONDS: Final = 0.1
"""Average delay in seconds until a send by another process is noticed."""
_BLIND_SECONDS: Final = 1.0
"""Pause in seconds between reads of the queue while the database's version is unknown."""


class Consumers:
    """The consumers of this process that wait for messages of queues."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._waiting: dict[str, deque[asyncio.Event]] = {}
        database.listen(self.notify_all)

    def notify(self, queue_id: str, count: int) -> None:
        """Wake the longest waiting consumers of a queue, one for each of `count` messages."""
        asleep = [each for each in self._waiting.get(queue_id, ()) if not each.is_set()]
        for each in asleep[:count]:
            each.set()

    def notify_all(self) -> None:
        """Wake all consumers; called after the commit of a transaction that called `announce`."""
        for waiting in self._waiting.values():
            for each in waiting:
                each.set()

    @contextmanager
    def _woken(self, queue_id: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set when messages are sent to a queue."""
        event = asyncio.Event()
        self._waiting.setdefault(queue_id, deque()).append(event)
        try:
            yield event
        finally:
            waiting = self._waiting[queue_id]
            waiting.remove(event)
            if not waiting:
                del self._waiting[queue_id]
            elif event.is_set():  # this consumer may have left without reading the queue
                self.notify(queue_id, 1)

    async def wait_for(
        self,
        queue_id: str,
        seconds: float,
        due_at: Callable[[], Awaitable[int | None]],
        check: Callable[[], Awaitable[None]],
        take: Callable[[], Awaitable[list[T]]],
        leave: Callable[[], Coroutine[None, None, None]],
    ) -> list[T]:
        """Return the result of `take` once it is not empty, or an empty list after `seconds`.

        `due_at` returns the earliest moment at which `take` may find something, in microseconds
        since the epoch, or None if unknown. `take` is called only from that moment on. If there was
        a wait, `check` is called before `take`; it raises if the caller has lost its rights.
        `leave` returns when the caller has left or the server is stopping, which ends the wait.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        has_waited = False
        with self._woken(queue_id) as woken, _running(leave, woken) as leaving:
            while True:
                woken.clear()
                version = self._database.version()
                due = await due_at()
                if due is not None and due <= self._clock():
                    if has_waited:
                        try:
                            await check()
                        except BaseException:
                            woken.set()  # so that another consumer is woken instead
                            raise
                    if taken := await take():
                        return taken
                    due = None  # another consumer was faster
                left = end - loop.time()
                if left <= 0:
                    return []
                if due is not None:
                    left = min(left, (due - self._clock()) / MICROSECONDS)
                await self._changed(woken, version, left)
                if leaving.done():
                    return []
                has_waited = True

    async def _changed(self, woken: asyncio.Event, version: int | None, seconds: float) -> None:
        """Wait until a send notifies, another process commits, or `seconds` are over."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        blind_until = loop.time() + _BLIND_SECONDS
        while (left := end - loop.time()) > 0 and not woken.is_set():
            pause = min(left, POLL_SECONDS * (0.5 + random.random()))  # noqa: S311
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await woken.wait()
            now = self._database.version()
            if now != version if now is not None else loop.time() >= blind_until:
                return


@contextmanager
def _running(
    leave: Callable[[], Coroutine[None, None, None]], woken: asyncio.Event
) -> Iterator[asyncio.Task[None]]:
    """Run `leave` during the block; set `woken` when it returns."""
    leaving = asyncio.create_task(leave())
    leaving.add_done_callback(lambda _: woken.set())
    try:
        yield leaving
    finally:
        leaving.cancel()

"""Limit a process's concurrent requests to upstreams, in total and for each account.

An account gets another slot only while its slots are fewer than half of the free ones. So the first
account has at most a third of all slots, and some stay free for others. The requests to one
upstream are also limited, for each account and in total, so that a slow upstream cannot take all
slots.

All waiting requests are looked at whenever one arrives or a slot is freed, and they continue to
wait after their clients have disconnected. So the number of an account's waiting requests is
limited.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Generic, NamedTuple, TypeVar

from cloudcore.errors import Unavailable

MOST_AT_ONCE: Final = 64
"""The number of slots; each used one costs a connection and a few MiB of memory."""
MOST_OF_UPSTREAM: Final = 32
"""The maximum number of slots at one upstream, for all accounts together."""
MOST_OF_ACCOUNT_THERE: Final = 16
"""The maximum number of slots of one account at one upstream."""
MOST_UNLISTED: Final = 4
"""The maximum number of slots of one account for blobs that no manifest here lists: clients may ask
for any digest."""

MOST_WAITING: Final = 256
"""The maximum number of waiting requests of one account; more are refused at once."""
_SLOT_SECONDS: Final = 10


class NoSlot(Unavailable):
    """No slot became free in time, or too many of the account's requests are waiting."""


class _Waiting(NamedTuple):
    """A request that waits for a slot."""

    account: str
    bounds: dict[tuple[str, ...], int]
    """The maximum number of slots of each group that the request belongs to, except its account."""
    granted: asyncio.Future[None]


class UpstreamSlots:
    """The slots of one process, which waiting requests get in order of arrival."""

    def __init__(self, wait_seconds: float) -> None:
        """Let each request wait at most this long."""
        self._wait_seconds = wait_seconds
        self._waiting: list[_Waiting] = []
        self._of: Counter[tuple[str, ...]] = Counter()
        """The number of taken slots, by group."""
        self._taken = 0

    @asynccontextmanager
    async def slot(
        self, account: str, upstream: str, *, is_listed: bool = True
    ) -> AsyncIterator[None]:
        """Wait for a slot for an account at an upstream, and hold the slot in a with block.

        `is_listed` is False for a blob that no manifest here lists. Raise `NoSlot` if no slot
        becomes free in time, or `MOST_WAITING` requests of the account are already waiting.
        """
        bounds: dict[tuple[str, ...], int] = {
            ("at", upstream): MOST_OF_UPSTREAM,
            ("there", account, upstream): MOST_OF_ACCOUNT_THERE,
        }
        if not is_listed:
            bounds["unlisted", account] = MOST_UNLISTED
        waiting = _Waiting(account, bounds, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._grant()
        try:
            if sum(each.account == account for each in self._waiting) > MOST_WAITING:
                raise _no_slot()
            try:
                async with asyncio.timeout(self._wait_seconds):
                    await waiting.granted
            except TimeoutError:
                raise _no_slot() from None
            yield
        finally:
            self._end(waiting)

    def _grant(self) -> None:
        """Give slots to waiting requests that may have one, in order of arrival."""
        for waiting in list(self._waiting):
            if not waiting.granted.done() and self._may_have(waiting):
                self._waiting.remove(waiting)
                self._taken += 1
                self._of.update([(waiting.account,), *waiting.bounds])
                waiting.granted.set_result(None)

    def _may_have(self, waiting: _Waiting) -> bool:
        left = MOST_AT_ONCE - self._taken
        is_fair = left > 0 and 2 * self._of[(waiting.account,)] < left
        return is_fair and all(self._of[key] < most for key, most in waiting.bounds.items())

    def _end(self, waiting: _Waiting) -> None:
        """Free a request's slot, or stop it from waiting for one."""
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            return
        self._taken -= 1
        self._of.subtract([(waiting.account,), *waiting.bounds])
        self._of = +self._of
        self._grant()


def _no_slot() -> NoSlot:
    return NoSlot("too much is being fetched from upstreams", retry_after=5)


T = TypeVar("T")


class SingleFlight(Generic[T]):
    """The running tasks of one process, by key; their number is limited by slots.

    Tasks continue after their callers have left, so limiting callers would not limit tasks.
    """

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[T]] = {}
        self._slots = UpstreamSlots(_SLOT_SECONDS)

    @property
    def is_busy(self) -> bool:
        """Return True if a task is running."""
        return bool(self._running)

    async def join(
        self,
        account: str,
        upstream: str,
        key: Hashable,
        begin: Callable[[], Coroutine[Any, Any, T]],
    ) -> T:
        """Return the result of the task for `key`, or raise its error; start the task if none runs.

        A task starts once the account has a slot at the upstream, and continues after its callers
        have left. Raise `NoSlot` if too many requests of the account, or in total, are running or
        waiting.
        """
        task = self._running.get(key)
        if task is None:
            task = asyncio.create_task(self._run(account, upstream, begin))
            self._running[key] = task
            task.add_done_callback(lambda done: self._end(key, done))
        return await asyncio.shield(task)

    async def aclose(self) -> None:
        """Cancel all tasks."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(
        self, account: str, upstream: str, begin: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        async with self._slots.slot(account, upstream):
            return await begin()

    def _end(self, key: Hashable, task: asyncio.Task[T]) -> None:
        del self._running[key]
        with suppress(asyncio.CancelledError):
            task.exception()  # so that asyncio does not log it if no caller is left

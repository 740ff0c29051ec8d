"""Limit the requests of a process to upstreams at one time, in all and for each account.

An account gets one more turn only while it has fewer than half as many as are left. So the first
has at most a third of all, and some are left for accounts that have none. What one account asks of
one upstream, and what all ask of one, have bounds too: an upstream that is slow holds few.

Those who wait are looked at whenever a turn ends or somebody comes, and they wait also when their
clients have left. So of each account only so many do.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Generic, NamedTuple, TypeVar

from cloudcore.errors import Unavailable

MOST_AT_ONCE: Final = 64
"""Each has a connection and a few MiB in memory."""
MOST_OF_UPSTREAM: Final = 32
"""For all accounts together."""
MOST_OF_ACCOUNT_THERE: Final = 16
"""For one account at one upstream."""
MOST_UNLISTED: Final = 4
"""For one account, of blobs that no manifest here lists: anybody can ask for any digest."""

MOST_WAITING: Final = 256
"""For one account; more are refused at once."""
_TURN_SECONDS: Final = 10


class NoTurn(Unavailable):
    """Too much is being fetched for long, or too much waits for it."""


class _Wish(NamedTuple):
    """Somebody who waits for a turn."""

    account: str
    bounds: dict[tuple[str, ...], int]
    """The most turns of each group that it belongs to, its account's aside."""
    given: asyncio.Future[None]


class Turns:
    """The turns of one process; of those who may have one, the earlier comes first."""

    def __init__(self, wait_seconds: float) -> None:
        """Let each wait at most so long."""
        self._wait_seconds = wait_seconds
        self._waiting: list[_Wish] = []
        self._of: Counter[tuple[str, ...]] = Counter()
        """Turns that are taken, by group."""
        self._taken = 0

    @asynccontextmanager
    async def turn(
        self, account: str, upstream: str, *, is_listed: bool = True
    ) -> AsyncIterator[None]:
        """Wait for a turn of an account at an upstream, and keep it in the block.

        Raises:
            NoTurn: none came in time, or `MOST_WAITING` of the account wait.

        """
        bounds: dict[tuple[str, ...], int] = {
            ("at", upstream): MOST_OF_UPSTREAM,
            ("there", account, upstream): MOST_OF_ACCOUNT_THERE,
        }
        if not is_listed:
            bounds["unlisted", account] = MOST_UNLISTED
        wish = _Wish(account, bounds, asyncio.get_running_loop().create_future())
        self._waiting.append(wish)
        self._give()
        try:
            if sum(each.account == account for each in self._waiting) > MOST_WAITING:
                raise _no_turn()
            try:
                async with asyncio.timeout(self._wait_seconds):
                    await wish.given
            except TimeoutError:
                raise _no_turn() from None
            yield
        finally:
            self._end(wish)

    def _give(self) -> None:
        """Give turns to those who may have one, in the order in which they came."""
        for wish in list(self._waiting):
            if not wish.given.done() and self._may_have(wish):
                self._waiting.remove(wish)
                self._taken += 1
                self._of.update([(wish.account,), *wish.bounds])
                wish.given.set_result(None)

    def _may_have(self, wish: _Wish) -> bool:
        left = MOST_AT_ONCE - self._taken
        is_fair = left > 0 and 2 * self._of[(wish.account,)] < left
        return is_fair and all(self._of[key] < most for key, most in wish.bounds.items())

    def _end(self, wish: _Wish) -> None:
        """End a turn, or the wish for one."""
        if wish in self._waiting:
            self._waiting.remove(wish)
            return
        self._taken -= 1
        self._of.subtract([(wish.account,), *wish.bounds])
        self._of = +self._of
        self._give()


def _no_turn() -> NoTurn:
    return NoTurn("too much is being fetched from upstreams", retry_after=5)


T = TypeVar("T")


class SingleFlight(Generic[T]):
    """The tasks under way in one process, by what they are for; not too many at once.

    They go on when their callers leave, so callers alone do not limit them.
    """

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[T]] = {}
        self._turns = Turns(_TURN_SECONDS)

    @property
    def is_busy(self) -> bool:
        """Return True if a task is under way."""
        return bool(self._running)

    async def join(
        self,
        account: str,
        upstream: str,
        key: Hashable,
        begin: Callable[[], Coroutine[Any, Any, T]],
    ) -> T:
        """Return the result of the task for `key`, or raise its error; begin it if none runs.

        It begins in the account's turn at the upstream, and goes on when its callers leave.

        Raises:
            NoTurn: too much is asked for at once, by the account or in all.

        """
        task = self._running.get(key)
        if task is None:
            task = asyncio.create_task(self._run(account, upstream, begin))
            self._running[key] = task
            task.add_done_callback(lambda done: self._end(key, done))
        return await asyncio.shield(task)

    async def aclose(self) -> None:
        """Break off what is under way."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(
        self, account: str, upstream: str, begin: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        async with self._turns.turn(account, upstream):
            return await begin()

    def _end(self, key: Hashable, task: asyncio.Task[T]) -> None:
        del self._running[key]
        with suppress(asyncio.CancelledError):
            task.exception()  # nobody may be left to see it

"""Do what several callers of a process ask for at once only once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from registry.services.pull_through.turns import Turns

T = TypeVar("T")
_TURN_SECONDS: Final = 10


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

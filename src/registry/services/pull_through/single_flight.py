"""Do what several callers of a process ask for at once only once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """The tasks under way in one process, by what they are for."""

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[T]] = {}

    @property
    def is_busy(self) -> bool:
        """Return True if a task is under way."""
        return bool(self._running)

    async def join(self, key: Hashable, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of the task for `key`, or raise its error; begin it if none runs.

        It goes on when its callers leave.
        """
        task = self._running.get(key)
        if task is None:
            task = asyncio.create_task(begin())
            self._running[key] = task
            task.add_done_callback(lambda done: self._end(key, done))
        return await asyncio.shield(task)

    async def aclose(self) -> None:
        """Break off what is under way."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _end(self, key: Hashable, task: asyncio.Task[T]) -> None:
        del self._running[key]
        with suppress(asyncio.CancelledError):
            task.exception()  # nobody may be left to see it

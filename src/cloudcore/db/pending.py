"""Calls that coroutines hand to database threads, and the delivery of their results."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Concatenate, Final

from cloudcore.db.base import Connection, P, T
from cloudcore.errors import Unavailable

CHANGES: Final = "database.changes"
FAILURES: Final = "database.failures"
MICROSECONDS: Final = "database.microseconds"
"""Metric keys: the number of changes that ended, the number of those that the database could not
make, and the total time from call to result."""

Count = Callable[[str, int], None]


def count_nothing(_key: str, _amount: int) -> None:
    """Ignore the count."""


class Pending:
    """A query or change for a database thread; create it on the event loop that awaits it."""

    __slots__ = (
        "call", "error", "future", "is_announced", "listeners", "loop", "relaxed", "result",
    )  # fmt: skip

    def __init__(
        self,
        call: Callable[[Connection], Any],
        *,
        relaxed: bool = False,
        listeners: Sequence[Callable[[], None]] = (),
    ) -> None:
        self.call = call
        self.relaxed = relaxed
        self.listeners = listeners
        self.is_announced = False
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        """Call the listeners and set the future's result; call this on the event loop."""
        if self.is_announced and self.error is None:
            for listener in self.listeners:
                listener()
        if self.future.done():  # the caller was cancelled; its change is committed anyway
            return
        if isinstance(self.error, StopIteration):  # a future refuses it
            self.error = RuntimeError("a query or change raised StopIteration")
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)
            # The error's traceback refers to this frame. Drop our reference: a cycle would
            # hold the change's variables, such as thousands of digests, until a garbage collection.
            self.error = None
            del self.future


def answer(settled: Iterable[Pending]) -> None:
    """Settle calls from a database thread, with one callback per event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Pending]] = {}
    for pending in settled:
        by_loop.setdefault(pending.loop, []).append(pending)
    for loop, callers in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed, so there are no callers
            loop.call_soon_threadsafe(_settle, callers)


def _settle(callers: list[Pending]) -> None:
    for pending in callers:
        pending.settle()


class ChangesByThread:
    """Base of databases that run changes in threads; it counts the changes."""

    def __init__(self, count: Count) -> None:
        """Store `count`, which is called with metric keys and amounts."""
        self._count = count
        self._listeners: list[Callable[[], None]] = []

    def _put(self, pending: Pending) -> None:
        """Hand a change to a thread."""
        raise NotImplementedError

    async def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `change` in a transaction and return its result once it is on disk."""
        return await self._made(lambda tx: change(tx, *args, **kwargs), relaxed=False)

    async def write_relaxed(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `change` in a transaction and return its result before it is on disk."""
        return await self._made(lambda tx: change(tx, *args, **kwargs), relaxed=True)

    async def _made(self, call: Callable[[Connection], T], *, relaxed: bool) -> T:
        begun = time.perf_counter()
        try:
            pending = Pending(call, relaxed=relaxed, listeners=self._listeners)
            self._put(pending)
            result: T = await pending.future
        except Unavailable:
            self._count(FAILURES, 1)
            raise
        finally:
            self._count(CHANGES, 1)
            self._count(MICROSECONDS, int((time.perf_counter() - begun) * 1e6))
        return result

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` on the loop after each commit of a change that called `announce`."""
        self._listeners.append(listener)

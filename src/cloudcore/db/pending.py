"""A call that a database thread runs for a coroutine, and the delivery of its result."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cloudcore.db.base import Connection


class Pending:
    """A query or change for a database thread; create it on the event loop that awaits it."""

    __slots__ = (
        "call",
        "error",
        "future",
        "is_announced",
        "listeners",
        "loop",
        "relaxed",
        "result",
    )

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
        """Call the listeners and set the future's result; runs on the event loop."""
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

"""Threads for what would hold the event loop: each kind of work has its own, none takes another's.

A pool that several kinds share is filled by one of them. So the event loop's own pool is left to
what no client causes: the start and the stop, probes and gauges. What computes rather than waits
runs one by one, in the turns of accounts: more at once would only contend for the interpreter.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Final, Generic, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class FairQueue(Generic[T]):
    """What waits to be done. Accounts take turns, each with what has waited longest.

    So an account waits for one of each other account, however many those have. It has no lock.
    """

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[T]] = OrderedDict()
        """By account; the account whose turn is next comes first."""

    def __len__(self) -> int:
        """Return how many accounts wait."""
        return len(self._lines)

    def put(self, account_id: str, waiting: T) -> None:
        """Let something wait for an account's turn."""
        self._lines.setdefault(account_id, deque()).append(waiting)

    def take(self) -> T:
        """Take what has waited longest for the account whose turn it is, which becomes the last.

        Raises:
            KeyError: nothing waits.

        """
        account_id, line = self._lines.popitem(last=False)
        taken = line.popleft()
        if line:
            self._lines[account_id] = line
        return taken


class FairThread:
    """A thread that runs calls one by one, in the turns of accounts."""

    def __init__(self, name: str, niceness: int = 0) -> None:
        """Make a thread, which starts with the first call; it is so much nicer than others."""
        # Linux alone has a niceness for each thread.
        how_nice = (niceness,) if sys.platform == "linux" else (0,)
        self._pool = ThreadPoolExecutor(1, name, initializer=os.nice, initargs=how_nice)
        self._lock = Lock()
        self._turns = FairQueue[Callable[[], None]]()

    async def run(self, account_id: str, call: Callable[[Unpack[Ts]], T], /, *arguments: *Ts) -> T:
        """Return the result of a call that is made for an account; cancelled, it may still run."""
        answer = Future[T]()
        with self._lock:
            self._turns.put(account_id, partial(_answer, answer, partial(call, *arguments)))
        self._pool.submit(self._take_turn)
        try:
            return await asyncio.wrap_future(answer)
        finally:
            del answer  # an error has this frame: together they would wait for a collection

    def _take_turn(self) -> None:
        with self._lock:
            turn = self._turns.take()
        try:
            turn()
        finally:
            del turn  # as in `run`


def _answer(answer: Future[T], call: Callable[[], T]) -> None:
    if answer.set_running_or_notify_cancel():
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            answer.set_exception(error)
            del answer, call  # as in `FairThread.run`


SLOW_KEYS: Final = FairThread("keys", niceness=10)
"""Makes slow keys, each of which takes up to seconds of a core. It releases the interpreter's lock
meanwhile and runs at a lower priority, so that requests are answered first."""
DOCUMENTS: Final = FairThread("documents")
"""Reads what is large or costs arithmetic: documents, bodies, policies. It holds the interpreter
for milliseconds, and the sooner it is done the better for all."""
TRANSFERS: Final = ThreadPoolExecutor(6, "bodies")
"""Bodies on their way, where the server is not ours or they are joined in memory."""

"""Threads for work that would block the event loop: one pool for each kind of work.

One kind of work could fill a pool that several share. So the event loop's own pool is used only for
work that no client causes: start and stop, probes and gauges. Work that computes rather than waits
runs one call at a time, and accounts take turns: more at once would only contend for the
interpreter's lock.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from threading import Lock
from typing import Final, Generic, Protocol, TypeVar, TypeVarTuple, Unpack
from weakref import WeakSet

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class FairQueue(Generic[T]):
    """A queue of waiting calls. Callers take turns; each caller's longest waiting call is first.

    A caller is an account or a person. Between two turns of one caller, each other caller has at
    most one turn, however many calls it has queued. The queue has no lock.
    """

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[T]] = OrderedDict()
        """The calls by caller; the caller whose turn is next comes first."""

    def __len__(self) -> int:
        """Return the number of callers that wait."""
        return len(self._lines)

    def longest(self) -> deque[T]:
        """Return the calls of the caller that has the most, the longest waiting call first.

        The result is empty if nothing waits.
        """
        return max(self._lines.values(), key=len, default=deque[T]())

    def put(self, caller_id: str, waiting: T) -> None:
        """Add a call for a caller."""
        self._lines.setdefault(caller_id, deque()).append(waiting)

    def take(self) -> T:
        """Remove and return the longest waiting call of the next caller, who then becomes the last.

        Raise `KeyError` if nothing waits.
        """
        caller_id, line = self._lines.popitem(last=False)
        taken = line.popleft()
        if line:
            self._lines[caller_id] = line
        return taken


class FairThread:
    """A thread that runs calls one at a time; accounts take turns."""

    def __init__(self, name: str, niceness: int = 0) -> None:
        """Make a thread with this niceness (on Linux); it starts with the first call."""
        # Linux alone has a niceness for each thread.
        how_nice = (niceness,) if sys.platform == "linux" else (0,)
        self._pool = ThreadPoolExecutor(1, name, initializer=os.nice, initargs=how_nice)
        self._lock = Lock()
        self._turns = FairQueue[Callable[[], None]]()

    async def run(self, account_id: str, call: Callable[[Unpack[Ts]], T], /, *arguments: *Ts) -> T:
        """Run a call for an account and return its result; if cancelled, the call may still run."""
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


_AT_ONCE: Final = 6
"""Threads of one pool: more than cores, as calls wait for the disk more than they compute."""
_BATCH: Final = 500
"""Maximum number of entries of a listing that are read in one call."""


class Runner(Protocol):
    """Calls a blocking function without blocking the event loop."""

    async def __call__(
        self,
        call: Callable[[Unpack[Ts]], T],
        /,
        *arguments: *Ts,
        undo: Callable[[T], None] | None = None,
    ) -> T:
        """Return the result of the call.

        If the caller is cancelled, wait for the call to end, since the caller closes files that the
        call uses; then pass its result to `undo`, and raise `CancelledError`.
        """


class Threads:
    """A pool of threads for one kind of work, which other work cannot fill; a `Runner`.

    The threads start with the first call, and end with `close`; a later call starts new ones.
    """

    def __init__(self, name: str, at_once: int = _AT_ONCE) -> None:
        self._name = name
        self._at_once = at_once
        self._pool: ThreadPoolExecutor | None = None
        _every.add(self)

    async def __call__(
        self,
        call: Callable[[Unpack[Ts]], T],
        /,
        *arguments: *Ts,
        undo: Callable[[T], None] | None = None,
    ) -> T:
        """Run `call` in one of the threads, as `Runner` describes."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._at_once, self._name)
        running = asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            while not running.done():
                try:
                    await asyncio.wait((running,))
                except asyncio.CancelledError:
                    continue
            if running.exception() is None and undo is not None:
                undo(running.result())
            raise

    def forget(self) -> None:
        """Drop the threads, which a fork does not copy; the next call starts new ones."""
        self._pool = None

    def close(self) -> None:
        """Wait for the running calls, and end the threads. Blocks."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()


_every: Final[WeakSet[Threads]] = WeakSet()


def _forget_all() -> None:
    for each in _every:
        each.forget()


os.register_at_fork(after_in_child=_forget_all)


async def each_of(run: Runner, entries: Iterator[T]) -> AsyncIterator[T]:
    """Yield the entries of a blocking listing, read by `run` in batches."""
    while batch := await run(lambda: list(islice(entries, _BATCH))):
        for entry in batch:
            yield entry


SLOW_KEYS: Final = FairThread("keys", niceness=10)
"""Generates slow keys, each of which takes up to seconds of a core. A call releases the
interpreter's lock meanwhile and runs at a lower priority, so that requests are answered first."""
DOCUMENTS: Final = FairThread("documents")
"""Parses large documents, bodies and policies, and runs costly arithmetic. A call holds the
interpreter's lock for milliseconds, so it runs at normal priority, to end soon."""
TRANSFERS: Final = Threads("bodies")
"""Reads and writes bodies for a server that is not ours, and joins bodies in memory."""

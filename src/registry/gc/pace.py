"""Limit how fast stored bytes are read, over all threads, and stop them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar, TypeVarTuple, Unpack

from registry.blobstore.threads import Threads

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

NO_LIMIT: Final = 0
VERIFYING: Final = Threads("verifying")
"""For whole reads of stored bytes, which take long, and wait for their pace."""


class ReadingStopped(Exception):
    """`Pace.stop` was called."""


class Pace:
    """The rate at which some threads read, in bytes per second; `NO_LIMIT` for as fast as can be.

    Threads that read too fast wait in `spend`, each for its own bytes. The limit holds over any
    time: what was not read in a pause is not made up for.
    """

    def __init__(
        self,
        bytes_per_second: int = NO_LIMIT,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._monotonic = monotonic
        self._wait = wait
        self._lock = threading.Lock()
        self._free_at = 0.0
        self._stopped = threading.Event()

    def spend(self, count: int) -> None:
        """Count bytes that were read, and wait as long as they take at this rate. Blocks.

        Raises:
            ReadingStopped: `stop` was called, before or meanwhile.

        """
        seconds = 0.0
        if self._bytes_per_second:
            with self._lock:
                now = self._monotonic()
                self._free_at = max(now, self._free_at) + count / self._bytes_per_second
                seconds = self._free_at - now
        if self._stopped.is_set() or (seconds > 0 and self._wait(self._stopped, seconds)):
            raise ReadingStopped

    def stop(self) -> None:
        """Stop all that read at this pace, now and later."""
        self._stopped.set()

    async def in_thread(self, call: Callable[[Unpack[Ts]], T], *arguments: *Ts) -> T:
        """Call what reads at this pace, in a thread.

        If this is cancelled, stop all that read at this pace, and wait for the thread: it may use
        files that the caller closes.
        """
        reading = asyncio.ensure_future(VERIFYING(call, *arguments))
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            self.stop()
            with suppress(ReadingStopped):
                await reading
            raise

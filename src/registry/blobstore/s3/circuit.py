"""Stop to ask a server that does not answer: threads that wait for it would be missed elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from registry.errors import StoreUnavailable

_FAILURES: Final = 5
"""Calls in a row without an answer after which it is asked no more."""
_PAUSE_SECONDS: Final = 2.0


class Circuit:
    """Lets calls through; after five without an answer, one every two seconds.

    The others fail at once, until one is answered.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._next_at = 0.0

    def check(self) -> None:
        """Raise StoreUnavailable if the server is not to be asked now."""
        with self._lock:
            if self._failures < _FAILURES:
                return
            now = self._clock()
            if now < self._next_at:
                raise StoreUnavailable("the blob store does not answer; it is asked again soon")
            self._next_at = now + _PAUSE_SECONDS

    def answered(self) -> None:
        """Note that the server has answered, whatever it said."""
        if self._failures:
            with self._lock:
                self._failures = 0

    def failed(self) -> None:
        """Note that the server did not answer."""
        with self._lock:
            self._failures += 1
            self._next_at = self._clock() + _PAUSE_SECONDS

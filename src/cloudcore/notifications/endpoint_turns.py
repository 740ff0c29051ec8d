"""Keep slots for others: no slow origin, and no account with slow ones, may hold them all.

What answers within `SLOW_SECONDS` is never held up here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

SLOW_SECONDS: Final = 1.0
MOST_OF_ORIGIN: Final = 4
"""Slow turns that one origin may have at once, in a process."""
MOST_OF_ACCOUNT: Final = 24
"""Slow turns that the endpoints of one account may have at once, in a process."""


class EndpointTurns:
    """Which endpoints are being asked, and since when."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._turns: dict[int, tuple[str, str, float]] = {}
        self._next = 0

    @contextmanager
    def take(self, origin: str, account_id: str) -> Iterator[bool]:
        """Hold a turn at an origin during the block; yield False if others are to wait for it."""
        now = self._seconds()
        slow = [turn for turn in self._turns.values() if now - turn[2] > SLOW_SECONDS]
        at_origin = sum(turn[0] == origin for turn in slow)
        of_account = sum(turn[1] == account_id for turn in slow)
        if at_origin >= MOST_OF_ORIGIN or of_account >= MOST_OF_ACCOUNT:
            yield False
            return
        self._next += 1
        key = self._next
        self._turns[key] = origin, account_id, now
        try:
            yield True
        finally:
            del self._turns[key]

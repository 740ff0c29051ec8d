"""Turns at endpoints: one that is slow gives up its slot, so that slow ones never hold all slots.

A worker has a number of slots for turns. An endpoint that is not known as slow may always be asked.
After `SLOW_SECONDS` it is known as slow for a while, and its turn goes on only if there is room
among the slow ones; else the turn gives up. One that is known as slow is asked only if there is
room. So whatever hangs, each slot that is not for slow turns is free again after `SLOW_SECONDS`;
and one that was slow once waits a few seconds at most until it is asked again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

SLOW_SECONDS: Final = 1.0
REMEMBERED_TURNS: Final = 5
"""How many times `SLOW_SECONDS` an endpoint is known as slow that was slow once."""
LONGEST_SECONDS: Final = 300.0
"""How long it is known as slow if it is so again and again; in between the time doubles."""
MOST_SLOW: Final = 48
"""Slow turns at once, in a process; it should have some slots more than these."""
MOST_OF_ORIGIN: Final = 4
"""Slow turns that one origin may have at once."""
MOST_OF_ACCOUNT: Final = 24
"""Slow turns that the endpoints of one account may have at once."""
_MOST_REMEMBERED: Final = 10_000
_LOOKS_A_SECOND: Final = 20
"""How many of those that had to give up, or found no room, look again each second."""


class _Known(NamedTuple):
    until: float
    seconds: float


@dataclass(eq=False, slots=True)
class Turn:
    """A turn at an endpoint."""

    endpoint: str
    origin: str
    account_id: str | None
    began: float
    is_slow: bool


class EndpointTurns:
    """Which endpoints are being asked, and which were slow."""

    def __init__(
        self,
        *,
        seconds: Callable[[], float] = time.monotonic,
        slow_seconds: float = SLOW_SECONDS,
        most_slow: int = MOST_SLOW,
    ) -> None:
        self.slow_seconds = slow_seconds
        self._seconds = seconds
        self._most_slow = most_slow
        self._slow: set[Turn] = set()
        self._remembered: dict[str, _Known] = {}
        """Endpoints that did not answer faster since they were slow; who was so last is last."""
        self._next_look = 0.0

    def begin(self, endpoint: str, origin: str, account_id: str | None) -> Turn | None:
        """Begin a turn, or return None if a slow endpoint has to wait for another one to end.

        `account_id` is None for an origin that all accounts share, and that is always slow.
        """
        now = self._seconds()
        known = self._remembered.get(endpoint)
        is_slow = account_id is None or (known is not None and known.until > now)
        if is_slow and not self._has_room(origin, account_id):
            return None
        turn = Turn(endpoint, origin, account_id, now, is_slow)
        if is_slow:
            self._slow.add(turn)
        return turn

    def may_go_on(self, turn: Turn) -> bool:
        """Return False if a turn that has lasted `slow_seconds` is to give up."""
        if turn.account_id is not None:
            self._remember(turn.endpoint)
        if not turn.is_slow and self._has_room(turn.origin, turn.account_id):
            turn.is_slow = True
            self._slow.add(turn)
        return turn.is_slow

    def end(self, turn: Turn) -> None:
        """End a turn; an endpoint that was fast is no longer known as slow."""
        self._slow.discard(turn)
        if self._seconds() - turn.began < self.slow_seconds:
            self._remembered.pop(turn.endpoint, None)

    def pause(self) -> float:
        """Return after how many seconds the next one is to look again that had no room.

        They come one after the other, so that their looks cost others little.
        """
        now = self._seconds()
        self._next_look = max(self._next_look + 1 / _LOOKS_A_SECOND, now + self.slow_seconds)
        return self._next_look - now

    def _has_room(self, origin: str, account_id: str | None) -> bool:
        if sum(turn.origin == origin for turn in self._slow) >= MOST_OF_ORIGIN:
            return False
        of_account = sum(turn.account_id == account_id for turn in self._slow)
        return account_id is None or (
            of_account < MOST_OF_ACCOUNT and len(self._slow) < self._most_slow
        )

    def _remember(self, endpoint: str) -> None:
        known = self._remembered.pop(endpoint, None)
        seconds = self.slow_seconds * REMEMBERED_TURNS if known is None else 2 * known.seconds
        seconds = min(seconds, LONGEST_SECONDS)
        self._remembered[endpoint] = _Known(self._seconds() + seconds, seconds)
        if len(self._remembered) > _MOST_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]

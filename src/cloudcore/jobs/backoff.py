"""Pauses before a retry: doubled after each failure, or staggered among the jobs of a process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_LARGEST_DOUBLING: Final = 30  # beyond it every pause is at its maximum
_RETRIES_A_SECOND: Final = 20


def backoff_seconds(first: float, longest: float, times: int) -> float:
    """Return the pause `first`, doubled `times` times, but not more than `longest`."""
    return min(first * 2.0 ** min(times, _LARGEST_DOUBLING), longest)


class StaggeredRetries:
    """Spreads out the retries of a process's jobs that found no free slot."""

    def __init__(self, seconds: Callable[[], float], first_seconds: float) -> None:
        """Let no job retry before `first_seconds` have passed; `seconds` is a monotonic clock."""
        self._seconds = seconds
        self._first_seconds = first_seconds
        self._next = 0.0

    def pause(self) -> float:
        """Return how many seconds the calling job shall wait before it retries."""
        now = self._seconds()
        self._next = max(self._next + 1 / _RETRIES_A_SECOND, now + self._first_seconds)
        return self._next - now

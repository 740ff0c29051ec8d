"""Months of UTC; a month is the moment at which it begins."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from cloudcore.clock import MICROSECONDS
from cloudcore.wire import moment_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def month_of(moment: int) -> int:
    """Return the month that a moment is in."""
    at = _EPOCH + timedelta(seconds=moment // MICROSECONDS)
    return moment_of(datetime(at.year, at.month, 1, tzinfo=UTC))


def month_after(month: int, count: int = 1) -> int:
    """Return the month so many months later; a negative number is earlier."""
    at = _EPOCH + timedelta(seconds=month // MICROSECONDS)
    years, index = divmod(at.year * 12 + at.month - 1 + count, 12)
    return moment_of(datetime(years, index + 1, 1, tzinfo=UTC))


def months_between(first: int, last: int) -> Iterator[int]:
    """Yield the months from one to another, both included."""
    while first <= last:
        yield first
        first = month_after(first)

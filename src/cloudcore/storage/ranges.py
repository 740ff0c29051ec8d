"""Read the ``Range`` of a download."""

from __future__ import annotations

import re
from typing import Final

from cloudcore.storage.errors import InvalidRange

_RANGE: Final = re.compile(r"bytes=([0-9]*)-([0-9]*)")
MAX_DIGITS: Final = 19
"""The digits of the largest 63-bit number, which clients send for "to the end"."""


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return ``[start, stop)`` of a ``Range``; None for all, as for a malformed or several.

    Raises:
        InvalidRange: it has no byte of `size`.

    """
    found = None if header is None else _RANGE.fullmatch(header.strip().lower())
    if found is None or found.groups() == ("", ""):
        return None
    first, last = found.groups()
    if not first:
        count = _number(last)
        if not count or not size:
            raise InvalidRange(size)
        return max(0, size - count), size
    start = _number(first)
    stop = _number(last) + 1 if last else size
    if last and stop <= start:
        return None
    if start >= size:
        raise InvalidRange(size)
    return start, min(stop, size)


def _number(digits: str) -> int:
    """Return a number, or one beyond any size for digits that are too many to convert."""
    return int(digits) if len(digits) <= MAX_DIGITS else 10**MAX_DIGITS

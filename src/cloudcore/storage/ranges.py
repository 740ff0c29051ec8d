"""Read the ``Range`` of a download."""

from __future__ import annotations

import re
from typing import Final

from cloudcore.storage.errors import InvalidRange

_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


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
        if not int(last) or not size:
            raise InvalidRange(size)
        return max(0, size - int(last)), size
    stop = int(last) + 1 if last else size
    if last and stop <= int(first):
        return None
    if int(first) >= size:
        raise InvalidRange(size)
    return int(first), min(stop, size)

"""Check quotas at most once a second per resource, as counting is expensive.

A resource may exceed its quota by as much as is added within a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cloudcore.clock import MICROSECONDS

_FRESH: Final = MICROSECONDS
_MOST: Final = 10_000


class QuotaChecks:
    """Remembers when each resource was last found to be within its quota."""

    def __init__(self) -> None:
        self._checked: dict[str, int] = {}

    @contextmanager
    def checking(self, thing_id: str, now: int) -> Iterator[bool]:
        """Yield False if the resource was found to be within its quota in the last second.

        Otherwise, yield True; a block that then ends without an error has counted the resource.
        """
        is_due = not 0 <= now - self._checked.get(thing_id, -_FRESH) < _FRESH
        yield is_due
        if is_due:
            if len(self._checked) >= _MOST:
                self._checked.clear()
            self._checked[thing_id] = now

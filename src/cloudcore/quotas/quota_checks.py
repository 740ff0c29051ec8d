"""Check quotas at most once a second per resource, as counting is expensive.

A resource may exceed its quota by as much as is added within a second.
"""

from __future__ import annotations

from typing import Final

from cloudcore.clock import MICROSECONDS

_FRESH: Final = MICROSECONDS
_MOST: Final = 10_000


class QuotaChecks:
    """Remembers when each resource was last found to be within its quota."""

    def __init__(self) -> None:
        self._checked: dict[str, int] = {}

    def is_due(self, thing_id: str, now: int) -> bool:
        """Return False if the resource was found to be within its quota in the last second."""
        return not 0 <= now - self._checked.get(thing_id, -_FRESH) < _FRESH

    def note(self, thing_id: str, now: int) -> None:
        """Record that the resource was counted, and is within the quota."""
        if len(self._checked) >= _MOST:
            self._checked.clear()
        self._checked[thing_id] = now

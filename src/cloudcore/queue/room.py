"""When a send counts what its queue holds.

To count costs some milliseconds for a full queue, so each process does it once a second for a
queue. A queue may exceed its quota by what is sent within a second.
"""

from __future__ import annotations

from typing import Final

from cloudcore.clock import MICROSECONDS

_FRESH: Final = MICROSECONDS
_MOST: Final = 10_000


class RoomChecks:
    """When each queue was last found to have room."""

    def __init__(self) -> None:
        self._checked: dict[str, int] = {}

    def is_due(self, queue_id: str, now: int) -> bool:
        """Return True if the next send to a queue must count."""
        return not 0 <= now - self._checked.get(queue_id, -_FRESH) < _FRESH

    def note(self, queue_id: str, now: int) -> None:
        """Note that a send has counted, and that there was room."""
        if len(self._checked) >= _MOST:
            self._checked.clear()
        self._checked[queue_id] = now

"""Bound the bytes of responses buffered for clients that do not read them.

A response from memory, of up to some MiB, is buffered until the kernel has taken all of it, and
a client may take a minute per byte. Without a bound, 150 such clients occupy 600 MiB.
"""

from __future__ import annotations

from typing import Final, Protocol

CUT: Final = "too many answers wait for slow clients, and this one waited longest"


class Cuttable(Protocol):
    """A connection that can be closed at once."""

    def abort(self, reason: str = "") -> None:
        """Close; `reason` is for the log."""
        ...


class Unsent:
    """The unsent bytes per connection, oldest wait first."""

    def __init__(self, size: int) -> None:
        """Allow at most `size` bytes."""
        self.size = size
        self.used = 0
        self._waiting: dict[Cuttable, int] = {}

    def keep(self, connection: Cuttable, count: int) -> None:
        """Set a connection's unsent bytes; beyond the bound, abort those that waited longest."""
        self.release(connection)
        self.used += count
        self._waiting[connection] = count
        while self.used > self.size and len(self._waiting) > 1:
            longest = next(iter(self._waiting))
            self.release(longest)
            longest.abort(CUT)

    def release(self, connection: Cuttable) -> None:
        """Remove a connection's unsent bytes."""
        self.used -= self._waiting.pop(connection, 0)

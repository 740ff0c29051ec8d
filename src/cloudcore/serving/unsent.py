"""How many bytes of answers a process keeps for clients that do not read them.

An answer from memory, of up to some MiB, is kept until the kernel has taken it all, and a
client may take a minute for each byte. Without a bound, 150 such clients keep 600 MiB.
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
    """The bytes that wait for clients, and those clients in the order they began to wait."""

    def __init__(self, size: int) -> None:
        """Keep at most `size` bytes."""
        self.size = size
        self.used = 0
        self._waiting: dict[Cuttable, int] = {}

    def keep(self, connection: Cuttable, count: int) -> None:
        """Keep `count` bytes for a connection; beyond the bound, cut who waited longest."""
        self.release(connection)
        self.used += count
        self._waiting[connection] = count
        while self.used > self.size and len(self._waiting) > 1:
            longest = next(iter(self._waiting))
            self.release(longest)
            longest.abort(CUT)

    def release(self, connection: Cuttable) -> None:
        """Note that nothing is kept for a connection any more."""
        self.used -= self._waiting.pop(connection, 0)

"""The memory that uploads of a process have together, until their bytes are sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from registry.errors import StoreUnavailable

_PATIENCE_SECONDS: Final = 30.0


class Budget:
    """At most `limit` bytes at once; who wants more waits, and is refused after half a minute.

    So many slow clients cannot fill the memory, and nobody waits without end. What is larger than
    all of it goes alone.
    """

    def __init__(self, limit: int, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        self.limit: Final = limit
        self._patience = patience_seconds
        self._changed = threading.Condition()
        self._used = 0
        self.most = 0
        """The most that was used at once."""

    @property
    def used(self) -> int:
        """Return how many bytes are used."""
        return self._used

    def take(self, count: int) -> None:
        """Use some bytes more.

        Raises:
            StoreUnavailable: others use them.

        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._fits(count), self._patience):
                raise StoreUnavailable("too many uploads are under way at once; try again")
            self._used += count
            self.most = max(self.most, self._used)

    def give(self, count: int) -> None:
        """Use some bytes less."""
        with self._changed:
            self._used -= count
            self._changed.notify_all()

    @contextmanager
    def taken(self, count: int) -> Iterator[None]:
        """Use some bytes for the block (`take`)."""
        self.take(count)
        try:
            yield
        finally:
            self.give(count)

    def _fits(self, count: int) -> bool:
        return not self._used or self._used + count <= self.limit

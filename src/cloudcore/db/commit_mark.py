"""A mark in memory by which processes forked from one tell each other that they have committed."""

from __future__ import annotations

import mmap
import os
from typing import Final

_BYTES: Final = 8


class CommitMark:
    """A number that a process and those forked from it share; make it before forking them.

    Each change gives it a random value, so whoever saw it before sees that it is another one (but
    once in 2^64), however many processes change it at a time and wherever one of them dies. There
    is no lock and no system call in reading it; a store of eight aligned bytes is never seen half.
    """

    def __init__(self) -> None:
        self._cell = memoryview(mmap.mmap(-1, _BYTES)).cast("Q")

    def change(self) -> None:
        """Give the mark a value that it never had."""
        self._cell[0] = int.from_bytes(os.urandom(_BYTES), "little")

    def value(self) -> int:
        """Return the present value."""
        return self._cell[0]

"""Kinds of damage: of stored bytes, and of stored counts that differ from a recount."""

from __future__ import annotations

from typing import Final, NamedTuple

ABSENT: Final = "absent"
"""The file does not exist."""
SIZE: Final = "size"
"""The file is shorter or longer than the row says."""
DIGEST: Final = "digest"
"""The bytes have another digest than the row says."""
UNREADABLE: Final = "unreadable"
"""The disk cannot read the bytes."""


class Miscount(NamedTuple):
    """A stored count that differs from its recount."""

    what: str
    recorded: object
    counted: object

    @property
    def problem(self) -> str:
        """Return the two counts in words."""
        return f"{self.recorded} on record, {self.counted} counted"

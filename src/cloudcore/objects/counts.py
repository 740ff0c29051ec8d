"""Numbers on record that rows contradict."""

from __future__ import annotations

from typing import NamedTuple


class Miscount(NamedTuple):
    """A number that differs from its recount."""

    what: str
    recorded: object
    counted: object

    @property
    def problem(self) -> str:
        """Return what is wrong, in words."""
        return f"{self.recorded} on record, {self.counted} counted"

"""Faults with counts: a repeated fault is one entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

MAX_FAULTS: Final = 100
"""Maximum number of distinct faults in a list; further ones are counted by code alone."""


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fault, with count and times in microseconds since the epoch."""

    code: str
    """A stable word in capitals."""
    message: str
    """The latest message; contains no secret."""
    first_at: int
    last_at: int
    occurrences: int
    subject: str = ""
    """Id or CRN of the affected resource; empty if it affects the whole."""

    def again(self, message: str, now: int) -> Fault:
        """Return a copy with one more occurrence, at `now`, and this message."""
        return msgspec.structs.replace(
            self, message=message, last_at=now, occurrences=self.occurrences + 1
        )


def next_fault(known: Fault | None, code: str, message: str, now: int) -> Fault:
    """Return `known` counted once more if it has this code, or else a new fault."""
    if known is None or known.code != code:
        return Fault(code, message, now, now, 1)
    return known.again(message, now)


def add_fault(
    faults: Sequence[Fault], code: str, message: str, now: int, *, subject: str = ""
) -> list[Fault]:
    """Return `faults` with one more, or with the one of this code and subject counted again.

    Beyond `MAX_FAULTS` distinct faults, the subject of a new one is dropped.
    """
    keys = [(fault.code, fault.subject) for fault in faults]
    key = (code, subject)
    if key not in keys and len(faults) >= MAX_FAULTS:
        key = (code, "")
    if key not in keys:
        return [*faults, Fault(code, message, now, now, 1, key[1])]
    number = keys.index(key)
    return [*faults[:number], faults[number].again(message, now), *faults[number + 1 :]]

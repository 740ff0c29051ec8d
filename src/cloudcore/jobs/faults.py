"""Faults, counted: what goes wrong again and again is one entry with a count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

MAX_FAULTS: Final = 100
"""Distinct faults that one thing keeps; further ones are counted by their code alone."""


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that went wrong, how often, and when; moments are in microseconds."""

    code: str
    """A stable word in capitals."""
    message: str
    """The last one; shows no secret."""
    first_at: int
    last_at: int
    occurrences: int
    subject: str = ""
    """The id or resource name of what it happened to; empty: the whole."""

    def again(self, message: str, now: int) -> Fault:
        """Return this fault after it happened once more."""
        return msgspec.structs.replace(
            self, message=message, last_at=now, occurrences=self.occurrences + 1
        )


def next_fault(known: Fault | None, code: str, message: str, now: int) -> Fault:
    """Return the known fault counted on, or a new one if there is none of this code."""
    if known is None or known.code != code:
        return Fault(code, message, now, now, 1)
    return known.again(message, now)


def add_fault(
    faults: Sequence[Fault], code: str, message: str, now: int, *, subject: str = ""
) -> list[Fault]:
    """Return `faults` with one more: the same code on the same subject is counted on.

    When there are `MAX_FAULTS` distinct ones, the subject of a new one is not kept.
    """
    keys = [(fault.code, fault.subject) for fault in faults]
    key = (code, subject)
    if key not in keys and len(faults) >= MAX_FAULTS:
        key = (code, "")
    if key not in keys:
        return [*faults, Fault(code, message, now, now, 1, key[1])]
    number = keys.index(key)
    return [*faults[:number], faults[number].again(message, now), *faults[number + 1 :]]

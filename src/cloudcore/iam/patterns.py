"""Match patterns of actions and resource names: ``*`` is any characters, ``?`` exactly one.

The value may contain a ``*`` too, such as ``bucket/web-*`` when a caller lists by prefix. A ``?``
in a pattern never matches that ``*``: ``web-?`` allows names with one more character, not a listing
of all names that begin with ``web-``.

Tenants choose both patterns and names, so the time of a match is limited by counting: a match
spends its worst-case number of steps from a `StepBudget`, and stops when the budget is exhausted. A
single comparison takes a few microseconds at most, so other threads can run in between.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

_PATTERN_STEPS: Final = 500
"""Minimum steps of a pattern. A step is about the time of comparing two characters: 0.4 ns on a
machine of 2020."""
_OPEN_CHARACTER_STEPS: Final = 300
"""Steps per character of a piece with a ``?``."""

_STARS: Final = re.compile(r"\*+")


class TooCostly(Exception):
    """The step budget of a match is exhausted."""


class StepBudget:
    """The number of steps that several matches may take together."""

    __slots__ = ("left",)

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        """Subtract `steps` from the budget; raise `TooCostly` if fewer are left."""
        self.left -= steps
        if self.left < 0:
            raise TooCostly


class _Pattern(NamedTuple):
    """A pattern, split at each ``*``."""

    first: str
    inner: tuple[str, ...]
    last: str | None
    """None if the pattern has no ``*``: then `first` is all of it."""
    size: int
    """Minimum length of a matching value."""
    steps: int
    """Maximum steps to compare `first` and `last`."""

    def match(self, value: str, work: StepBudget | None) -> bool:
        """Return True if the whole `value` matches.

        Each inner piece is matched at its first occurrence; no backtracking is needed.
        """
        if len(value) < self.size or not _is_at(self.first, value, 0):
            return False
        if self.last is None:
            return len(value) == self.size
        end = len(value) - len(self.last)
        if not _is_at(self.last, value, end):
            return False
        at = len(self.first)
        for piece in self.inner:
            if work is not None:
                work.spend(_steps(piece, end - at))
            at = _find(piece, value, at, end)
            if at < 0:
                return False
            at += len(piece)
        return at <= end


@dataclass(frozen=True)
class Patterns:
    """Patterns, parsed at first use; a value matches if it matches one of them."""

    texts: tuple[str, ...]

    def match(self, value: str, work: StepBudget | None = None) -> bool:
        """Return True if the whole `value` matches one of the patterns.

        Raise `TooCostly` if the budget `work` is exhausted before the result is known.
        """
        for pattern in self._patterns:
            if work is not None:
                work.spend(pattern.steps)
            if pattern.match(value, work):
                return True
        return False

    @cached_property
    def match_everything(self) -> bool:
        """Return True if every value matches."""
        return any(text and not text.strip("*") for text in self.texts)

    @cached_property
    def _patterns(self) -> tuple[_Pattern, ...]:
        return tuple(map(_pattern, self.texts))


def _pattern(text: str) -> _Pattern:
    first, *rest = _STARS.split(text)
    size = len(first) + sum(map(len, rest))
    steps = _PATTERN_STEPS + _end_steps(first)
    if not rest:
        return _Pattern(first, (), None, size, steps)
    *inner, last = rest
    return _Pattern(first, tuple(inner), last, size, steps + _end_steps(last))


def _end_steps(piece: str) -> int:
    return len(piece) * _OPEN_CHARACTER_STEPS if "?" in piece else 0


def _steps(piece: str, room: int) -> int:
    """Return the worst-case number of steps to find `piece` within `room` characters."""
    if "?" in piece:
        return len(piece) * _OPEN_CHARACTER_STEPS
    return max(room - len(piece) + 1, 1) * len(piece)


def _is_at(piece: str, value: str, at: int) -> bool:
    if "?" not in piece:
        return value.startswith(piece, at)
    found = value[at : at + len(piece)]
    return all(
        character == wanted or (wanted == "?" and character != "*")
        for wanted, character in zip(piece, found, strict=True)
    )


def _find(piece: str, value: str, at: int, end: int) -> int:
    """Return the first index of `piece` in ``value[at:end]``, or -1."""
    if "?" not in piece:
        return value.find(piece, at, end)
    places = _places(value)
    starts = -1 << at  # one bit per index where the piece may begin
    for offset, wanted in enumerate(piece):
        starts &= places.get(wanted, 0) >> offset
        if not starts:
            return -1
    found = (starts & -starts).bit_length() - 1
    return found if found + len(piece) <= end else -1


@lru_cache(maxsize=64)
def _places(value: str) -> dict[str, int]:
    """Map each character to a bit set of its indexes; ``?`` to all indexes without a ``*``."""
    places: dict[str, int] = {}
    for place, character in enumerate(value):
        places[character] = places.get(character, 0) | 1 << place
    places["?"] = (1 << len(value)) - 1 & ~places.get("*", 0)
    return places

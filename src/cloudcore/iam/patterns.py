"""Patterns of actions and resource names: ``*`` is any run of characters, ``?`` any one.

The value may hold a ``*`` too: a list asks about ``bucket/web-*``. A ``?`` never fits that
``*``: ``web-?`` is the names of one more character, not all that begin with ``web-``.

Both the patterns and the names are made by tenants, so the time of a match is bounded by counting:
a match takes `Work` for what it may cost at worst, and ends when that is used up. No single
comparison takes longer than some microseconds, so a thread that matches lets other threads run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

_PATTERN_STEPS: Final = 500
"""Steps that each pattern costs at least. A step is about the time of comparing two characters,
0.4 ns on a machine of 2020."""
_OPEN_CHARACTER_STEPS: Final = 300
"""Steps for each character of a piece that holds a ``?``."""

_STARS: Final = re.compile(r"\*+")


class TooCostly(Exception):
    """The work that a match may take is used up."""


class Work:
    """The steps left to all matches that share this object."""

    __slots__ = ("left",)

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        """Count `steps`.

        Raises:
            TooCostly: fewer are left.

        """
        self.left -= steps
        if self.left < 0:
            raise TooCostly


class _Pattern(NamedTuple):
    """A pattern, cut at each ``*`` into pieces."""

    first: str
    inner: tuple[str, ...]
    last: str | None
    """None: the pattern has no ``*``, and `first` is all of it."""
    size: int
    """Characters that a fitting value has at least."""
    steps: int
    """Steps that comparing its ends may cost."""

    def match(self, value: str, work: Work | None) -> bool:
        """Return True if the whole of `value` fits.

        Each inner piece is taken where it first occurs and never sought again, which is enough
        for a match.
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
    """Patterns of which one must fit, cut into pieces at first use."""

    texts: tuple[str, ...]

    def match(self, value: str, work: Work | None = None) -> bool:
        """Return True if the whole of `value` fits a pattern.

        Raises:
            TooCostly: `work` was used up before that was known.

        """
        for pattern in self._patterns:
            if work is not None:
                work.spend(pattern.steps)
            if pattern.match(value, work):
                return True
        return False

    @cached_property
    def match_everything(self) -> bool:
        """Return True if every value fits."""
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
    """Return how many steps finding `piece` within `room` characters may cost."""
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
    """Return the first place of `piece` in ``value[at:end]``, or -1."""
    if "?" not in piece:
        return value.find(piece, at, end)
    places = _places(value)
    starts = -1 << at  # a bit for each place where the piece may begin
    for offset, wanted in enumerate(piece):
        starts &= places.get(wanted, 0) >> offset
        if not starts:
            return -1
    found = (starts & -starts).bit_length() - 1
    return found if found + len(piece) <= end else -1


@lru_cache(maxsize=64)
def _places(value: str) -> dict[str, int]:
    """Return where each character stands, a bit for each place; ``?`` is all but ``*``."""
    places: dict[str, int] = {}
    for place, character in enumerate(value):
        places[character] = places.get(character, 0) | 1 << place
    places["?"] = (1 << len(value)) - 1 & ~places.get("*", 0)
    return places

"""Patterns of actions and resource names: ``*`` is any run of characters, ``?`` any one.

What is asked about may hold a ``*`` too: a list is of ``repository/web-*``, whatever the names. No
``?`` stands for that: ``web-?`` is names of one more character, not all that begin with ``web-``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Patterns:
    """A list of patterns of which one suffices, compiled to one expression at first use."""

    texts: tuple[str, ...]

    def match(self, value: str) -> bool:
        """Say whether the whole of `value` fits a pattern."""
        return self._expression.fullmatch(value) is not None

    @cached_property
    def match_everything(self) -> bool:
        """Say whether no value can fail to fit."""
        return any(text and not text.strip("*") for text in self.texts)

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        return re.compile("|".join(map(_expression, self.texts)), re.DOTALL)


def _expression(text: str) -> str:
    """Translate one pattern.

    Each inner piece is taken where it first occurs and never sought again (an atomic group), which
    is enough for a match and keeps the time to the product of the two lengths.
    """
    first, *rest = [_piece(piece) for piece in re.split(r"\*+", text)]
    if not rest:
        return first
    *inner, last = rest
    return first + "".join(f"(?>.*?{piece})" for piece in inner) + f".*{last}"


def _piece(text: str) -> str:
    return "".join("[^*]" if character == "?" else re.escape(character) for character in text)

"""A sorted set of ids that takes little memory and is cheap to copy with a few changes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, Self

_WIDTH: Final = 36
"""Characters of an id."""
_BLOCK: Final = 256


class SortedIds:
    """An immutable set of UUIDs as text.

    Stored as strings of up to 256 ids each; a changed copy shares the strings that stay the same.
    """

    __slots__ = ("_blocks", "_count")

    def __init__(self, blocks: Iterable[str] = ()) -> None:
        """Take strings of sorted ids; use `of` to build them."""
        self._blocks = tuple(blocks)
        self._count = sum(map(len, self._blocks)) // _WIDTH

    @classmethod
    def of(cls, ids: Iterable[str]) -> Self:
        """Return the set of these ids."""
        return cls(_joined(ids))

    def __len__(self) -> int:
        """Return the number of ids."""
        return self._count

    def before(self, marker: str, limit: int) -> list[str]:
        """Return the last `limit` ids that sort before `marker`, the greatest first."""
        found: list[str] = []
        at = bisect_left(self._blocks, marker, key=_first)
        while at and len(found) < limit:
            at -= 1
            found += (each for each in reversed(_split(self._blocks[at])) if each < marker)
        return found[:limit]

    def changed(self, present: Mapping[str, bool]) -> Self:
        """Return a copy with the ids added that `present` maps to True, and the others removed."""
        blocks = list(self._blocks) or [""]
        by_block: defaultdict[int, dict[str, bool]] = defaultdict(dict)
        for each, is_in in present.items():
            by_block[max(0, bisect_right(blocks, each, key=_first) - 1)][each] = is_in
        for at in sorted(by_block, reverse=True):
            merged = dict.fromkeys(_split(blocks[at]), True) | by_block[at]
            blocks[at : at + 1] = _joined(each for each, is_in in merged.items() if is_in)
        return type(self)(blocks)


def _first(block: str) -> str:
    return block[:_WIDTH]


def _split(block: str) -> list[str]:
    return [block[at : at + _WIDTH] for at in range(0, len(block), _WIDTH)]


def _joined(ids: Iterable[str]) -> list[str]:
    ordered = sorted(set(ids))
    return ["".join(ordered[at : at + _BLOCK]) for at in range(0, len(ordered), _BLOCK)]

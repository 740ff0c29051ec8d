"""How many images or tags there are under a prefix, counted once for each state of a repository.

Such a count costs a step for every tag it is of, and a list under a prefix wants it with every
page. So it is kept for as long as the repository stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cloudcore.db.base import Connection
from registry.metadata.image_repositories import ImageRepository

_Count = Callable[[Connection, str, str], int]

_MAX: Final = 1024
_kept: Final[dict[tuple[_Count, str, str], tuple[tuple[int, ...], int]]] = {}


def total_under(tx: Connection, found: ImageRepository, prefix: str, count: _Count) -> int:
    """Return what `count` finds of a prefix in a repository that was just read."""
    # A change of tags writes the moment and most often a counter, so its state tells it.
    state = (found.updated_at, found.image_count, found.tagged_image_count, found.tag_count)
    key = (count, found.repository.id, prefix)
    kept = _kept.get(key)
    if kept is not None and kept[0] == state:
        return kept[1]
    total = count(tx, found.repository.id, prefix)
    if len(_kept) >= _MAX:
        _kept.clear()
    _kept[key] = (state, total)
    return total

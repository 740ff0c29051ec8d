"""The images that carry tags with a prefix, kept in memory and brought up to date at each use.

To find them all is a step for each such tag, and a list under a prefix wants their number with
every page. So they are found once; then the history of the repository's tags says what has
changed. Each process keeps its own, of the prefixes that were asked for last.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from registry.metadata.repositories.visible import ImageRepository
from registry.metadata.tags.prefix_index import (
    MAX_CHANGES,
    Change,
    Position,
    find_position,
    find_tagged_images,
    list_changes,
)
from registry.oci.reference import is_tag
from registry.services.tags.sorted_ids import SortedIds

MAX_IDS: Final = 500_000
"""How many ids a process keeps: 36 bytes each."""
_OVERHEAD_IDS: Final = 50
"""What a prefix costs by itself, in ids."""


class Carriers(NamedTuple):
    """What there is under a prefix."""

    images: SortedIds
    tag_count: int


class _Known(NamedTuple):
    carriers: Carriers
    last: Position | None
    """The last event of the repository's tags that has been seen; None: there was none."""
    updated_at: int
    """When the repository had last changed."""


class _Kept:
    """What a process keeps, the least recently used first; its values are never changed."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], _Known] = OrderedDict()
        self._ids = 0
        self._lock = threading.Lock()

    def get(self, key: tuple[str, str]) -> _Known | None:
        """Return what is known of a repository and a prefix."""
        return self._known.get(key)

    def put(self, key: tuple[str, str], known: _Known) -> None:
        """Keep what is known; what was used before everything else goes if it is too much."""
        with self._lock:
            self._ids -= _weight(self._known.pop(key, None))
            self._known[key] = known
            self._ids += _weight(known)
            while self._ids > MAX_IDS and len(self._known) > 1:
                self._ids -= _weight(self._known.popitem(last=False)[1])


_kept: Final = _Kept()


def carriers_under(tx: Connection, found: ImageRepository, prefix: str) -> Carriers:
    """Return the images and the number of the tags with a prefix; a step for each change.

    To be called in reads only: what it finds is kept, and must have been committed.
    """
    if not is_tag(prefix):  # nor is anything that begins so
        return Carriers(SortedIds(), 0)
    key = (found.repository.id, prefix)
    known = _kept.get(key)
    fresh = known and _followed(tx, found, prefix, known)
    if fresh is None:
        ids, last = find_tagged_images(tx, found.repository.id, prefix)
        fresh = _Known(Carriers(SortedIds.of(ids), len(ids)), last, found.updated_at)
    _kept.put(key, fresh)
    return fresh.carriers


def _followed(tx: Connection, found: ImageRepository, prefix: str, known: _Known) -> _Known | None:
    """Return what was known, brought up to date; None when history does not tell."""
    last = find_position(tx, found.repository.id)
    if last is None or known.last is None:
        # What happened since may have been forgotten too, after a year.
        return known if last == known.last and known.updated_at == found.updated_at else None
    if last == known.last:
        return known
    changes = list_changes(tx, found.repository.id, prefix, known.last.sequence)
    if len(changes) == MAX_CHANGES or not changes or changes[0].position != known.last:
        return None
    under = [change for change in changes[1:] if change.tag.startswith(prefix)]
    if not all(map(_is_told, under)):
        return None
    images, count = known.carriers
    sides = [side for change in under for side in (change.before, change.after) if side]
    carriers = Carriers(
        images.changed({side.image_id: side.has_tag for side in sides if side.image_id}),
        count + sum((c.after is not None) - (c.before is not None) for c in under),
    )
    return _Known(carriers, changes[-1].position, found.updated_at)


def _is_told(change: Change) -> bool:
    return all(side is None or side.image_id for side in (change.before, change.after))


def _weight(known: _Known | None) -> int:
    return len(known.carriers.images) + _OVERHEAD_IDS if known else 0

"""Cache the images whose tags begin with a prefix, and update the cache at each use.

Finding these images costs a step for each such tag, and every page of a list by prefix shows their
number. So they are read once; after that, the repository's tag history supplies the changes. Each
process caches the most recently used prefixes.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Self

from cloudcore.db.base import Connection
from registry.metadata.repositories.repository import VisibleRepository
from registry.metadata.tags import prefix_index as rows
from registry.oci.reference import is_tag

_WIDTH: Final = 36
"""The number of characters of an id."""
_BLOCK: Final = 256


class SortedIds:
    """An immutable set of UUIDs as text.

    The ids are stored in strings of up to 256 ids each; a changed copy shares the unchanged
    strings.
    """

    __slots__ = ("_blocks", "_count")

    def __init__(self, blocks: Iterable[str] = ()) -> None:
        """Use strings of concatenated sorted ids; call `of` to build a set from ids."""
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
        """Return the last `limit` ids that sort before `marker`, in descending order."""
        found: list[str] = []
        at = bisect_left(self._blocks, marker, key=_first)
        while at and len(found) < limit:
            at -= 1
            found += (each for each in reversed(_split(self._blocks[at])) if each < marker)
        return found[:limit]

    def changed(self, present: Mapping[str, bool]) -> Self:
        """Return a copy with the ids that are True in `present`, without those that are False."""
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


MAX_IDS: Final = 500_000
"""The maximum number of ids that a process caches, 36 bytes each."""
_OVERHEAD_IDS: Final = 50
"""The weight of an empty cache entry, in ids."""


class PrefixIndex(NamedTuple):
    """The images that have a tag with a prefix, and the number of such tags."""

    images: SortedIds
    tag_count: int


class _CacheEntry(NamedTuple):
    prefix_index: PrefixIndex
    last: rows.Position | None
    """The last tag event that the index includes, or None if the repository had none."""
    updated_at: int
    """The repository's `updated_at` when the index was read."""


class _Cache:
    """An LRU cache of indexes, the least recently used first; its values are immutable."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[str, str], _CacheEntry] = OrderedDict()
        self._ids = 0
        self._lock = threading.Lock()

    def get(self, key: tuple[str, str]) -> _CacheEntry | None:
        return self._entries.get(key)

    def put(self, key: tuple[str, str], entry: _CacheEntry) -> None:
        """Store an entry; evict the least recently used ones if there are over `MAX_IDS` ids."""
        with self._lock:
            self._ids -= _weight(self._entries.pop(key, None))
            self._entries[key] = entry
            self._ids += _weight(entry)
            while self._ids > MAX_IDS and len(self._entries) > 1:
                self._ids -= _weight(self._entries.popitem(last=False)[1])


_cache: Final = _Cache()


def prefix_index_of(tx: Connection, found: VisibleRepository, prefix: str) -> PrefixIndex:
    """Return the images that have a tag with a prefix, and the number of such tags.

    The cost is a step for each change since the last call. Call this in read transactions only: the
    result is cached, so it must be committed data.
    """
    if not is_tag(prefix):  # then no tag starts with it
        return PrefixIndex(SortedIds(), 0)
    key = (found.repository.id, prefix)
    entry = _cache.get(key)
    fresh = entry and _updated(tx, found, prefix, entry)
    if fresh is None:
        ids, last = rows.find_tagged_images(tx, found.repository.id, prefix)
        fresh = _CacheEntry(PrefixIndex(SortedIds.of(ids), len(ids)), last, found.updated_at)
    _cache.put(key, fresh)
    return fresh.prefix_index


def _updated(
    tx: Connection, found: VisibleRepository, prefix: str, entry: _CacheEntry
) -> _CacheEntry | None:
    """Update an entry from the tag history; return None if the history does not suffice."""
    last = rows.find_position(tx, found.repository.id)
    if last is None or entry.last is None:
        # History is kept for a year, so later events may have been purged as well.
        return entry if last == entry.last and entry.updated_at == found.updated_at else None
    if last == entry.last:
        return entry
    changes = rows.list_changes(tx, found.repository.id, prefix, entry.last.sequence)
    if len(changes) == rows.MAX_CHANGES or not changes or changes[0].position != entry.last:
        return None
    under = [change for change in changes[1:] if change.tag.startswith(prefix)]
    images, count = entry.prefix_index
    sides = [side for change in under for side in (change.before, change.after) if side]
    index = PrefixIndex(
        images.changed({side.image_id: side.has_tag for side in sides}),
        count + sum((c.after is not None) - (c.before is not None) for c in under),
    )
    return _CacheEntry(index, changes[-1].position, found.updated_at)


def _weight(entry: _CacheEntry | None) -> int:
    return len(entry.prefix_index.images) + _OVERHEAD_IDS if entry else 0

"""Orphans in a bucket: their bytes stay at their key; a *mark* says when they were set aside.

A mark is an empty object, with all information in its key. So orphans that are needed after all
stay readable, and a reader that finds a row for them removes the mark.
"""

from __future__ import annotations

from collections.abc import Iterator

from registry.blobstore.base import Orphan
from registry.blobstore.s3.bucket_layout import (
    ORPHANS,
    object_key,
    orphan_key,
    orphan_of,
    orphans_in,
    orphans_of,
)
from registry.blobstore.s3.uploads import Shared


class Marks:
    """The orphan marks of a bucket. Caches the ids that this process has marked, or seen marked."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._known: set[str] = set()

    def is_known(self, object_id: str) -> bool:
        """Return True if the cache says that these bytes are marked."""
        return object_id in self._known

    def set_aside(self, object_id: str, moment: int, *, staged_too: bool) -> bool:
        """Mark an object, or staged bytes; return False if they are absent or already marked."""
        bucket = self._shared.bucket
        if any(True for _ in bucket.listed(orphans_of(object_id))):
            return False
        found = self._shared.look(object_id)
        if found.is_nothing or not (found.is_object or staged_too):
            return False
        if found.is_object and found.head is not None:
            size = found.head.size
        else:
            size = max((each.stored for each in found.tails), default=0)
        orphan = Orphan(object_id, moment, found.is_object, size)
        bucket.put(orphan_key(orphan), b"")
        self._known.add(object_id)
        return True

    def listed(self, prefix: str = ORPHANS) -> Iterator[Orphan]:
        """Yield every orphan whose mark has a key that begins with `prefix`."""
        for entry in self._shared.bucket.listed(prefix):
            orphan = orphan_of(entry.key)
            if orphan is not None:
                self._known.add(orphan.object_id)
                yield orphan

    def ids(self, partition: str | None = None) -> set[str]:
        """Return the ids of all orphans, or of a partition's."""
        prefix = ORPHANS if partition is None else orphans_in(partition)
        return {each.object_id for each in self.listed(prefix)}

    def take_back(self, object_id: str) -> bool:
        """Remove the marks of an object or of staged bytes; return False if there are none."""
        bucket = self._shared.bucket
        keys = [entry.key for entry in bucket.listed(orphans_of(object_id))]
        bucket.delete_all(keys)
        self._known.discard(object_id)
        return bool(keys)

    def delete(self, orphan: Orphan) -> None:
        """Delete the bytes of an orphan, then its mark; do nothing if the mark is absent."""
        bucket, key = self._shared.bucket, orphan_key(orphan)
        if bucket.find(key) is None:
            return
        self._shared.discard(orphan.object_id)
        gone = [object_key(orphan.object_id)] if orphan.is_object else []
        bucket.delete_all(gone)
        bucket.delete_all([key])
        self._known.discard(orphan.object_id)

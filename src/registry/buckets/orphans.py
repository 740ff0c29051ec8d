"""Find the bytes of buckets that no row names.

As with blobs (`registry.gc.orphans`): bytes that can be held and have no row are orphans, are set
aside, and deleted when they have been aside for days. Nothing is done under a database that is
older than the blobs. If too many bytes seem to be nobody's, that and the rest of the turn is left.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.storage.needs import Owned
from registry.blobstore.base import BlobStore, DeletionsHeld, ObjectUnknown, StageBusy
from registry.gc.orphans import EVERY_SECONDS, RECENT, SETTLED, STAGED, Found, begun_at, ids_in

_BATCH: Final = 500

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class BucketOrphans:
    """The scans of one process: each turn looks at staged bytes, and at one partition.

    The first turn looks at recent bytes of all partitions too, for those of a process that died
    just before this one began. `may_judge` tells whether the database is the one of the bytes.
    """

    store: BlobStore
    clock: Clock
    kept: int
    """Microseconds for which what is set aside is kept."""
    may_judge: Callable[[], Awaitable[bool]]
    is_first: bool = True

    async def turn(self, owned: Owned) -> int:
        """Do a turn unless another process does; return how many were set aside."""
        async with self.store.scan_alone() as is_alone:
            if not is_alone or not await self.may_judge():
                return 0
            await self._tend(owned)
            moved = 0
            for places, since in self._due():
                found = await self._find(places, owned, since)
                if not found.is_credible:
                    _log.error(
                        "%d of %d stored pieces of buckets belong to no row; none is set aside. Is"
                        " this the database of these bytes?",
                        len(found.orphans),
                        found.files,
                    )
                    return moved
                moved += await self._set_aside(found.orphans, owned)
            self.is_first = False
            return moved

    def _due(self) -> list[tuple[Sequence[str], int]]:
        """Return the places to scan in this turn, and since when what is there was begun."""
        partitions, now = self.store.partitions(), self.clock()
        place = now // (EVERY_SECONDS * MICROSECONDS) % len(partitions)
        recent = [(partitions, now - RECENT)] if self.is_first else []
        return [([STAGED], 0), *recent, ([partitions[place]], 0)]

    async def _find(self, places: Sequence[str], owned: Owned, since: int) -> Found:
        """Return what some places hold that was begun `since`."""
        files, orphans = 0, []
        for place in places:
            listed = [each async for each in ids_in(self.store, place) if begun_at(each) >= since]
            files += len(listed)
            orphans += await self._without_rows(listed, owned)
        return Found(files, files - len(orphans), orphans)

    async def _without_rows(self, listed: Sequence[str], owned: Owned) -> list[str]:
        settled = [each for each in listed if begun_at(each) + SETTLED <= self.clock()]
        found: list[str] = []
        for start in range(0, len(settled), _BATCH):
            batch = settled[start : start + _BATCH]
            known = await owned(batch)
            found += [each for each in batch if each not in known]
        return found

    async def _set_aside(self, orphans: Sequence[str], owned: Owned) -> int:
        """Set orphans aside; return how many still were some."""
        moved = 0
        for object_id in orphans:
            moved += await self._set_one_aside(object_id, owned)
        if moved:
            _log.warning("set aside %d stored pieces of buckets that belonged to no row", moved)
        return moved

    async def _set_one_aside(self, object_id: str, owned: Owned) -> bool:
        """Hold an orphan and set it aside, unless it has a row."""
        try:
            held = await self.store.resume(object_id)
        except (StageBusy, ObjectUnknown):
            return False  # it is being written, or gone
        async with aclosing(held):
            if await owned([object_id]):
                return False
            return await self.store.set_aside(object_id, self.clock())

    async def _tend(self, owned: Owned) -> None:
        """Put back what has a row, and delete what was set aside long ago."""
        before = self.clock() - self.kept
        orphans = [each async for each in self.store.list_orphans()]
        for start in range(0, len(orphans), _BATCH):
            batch = orphans[start : start + _BATCH]
            known = await owned([each.object_id for each in batch])
            for each in batch:
                if each.object_id in known:
                    await self.store.take_back(each.object_id)
                elif each.set_aside_at <= before:
                    try:
                        await self.store.delete_orphan(each)
                    except DeletionsHeld:
                        return  # a turn after the backup goes on

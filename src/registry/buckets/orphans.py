"""Find the bytes of buckets that no row names.

As with blobs, by the same code (`registry.gc.orphans.Tenant`): bytes that can be held and have no
row are orphans, are set aside, and deleted when they have been aside for days. Nothing is done
under a database that is older than the blobs. If too many bytes seem to be nobody's, that and the
rest of the turn is left.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from cloudcore.clock import Clock
from cloudcore.objects.book import Owned
from registry.blobstore.base import BlobStore
from registry.gc.orphans import RECENT, SETTLED, Found, Tenant, begun_at, due_places

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
        what, now = "stored pieces of buckets", self.clock()
        tenant = Tenant(what, self.store, self.store, self.clock, owned, self.may_judge, self.kept)
        async with self.store.scan_alone() as is_alone:
            if not is_alone or not await self.may_judge():
                return 0
            await tenant.tend()
            moved = 0
            for places, since in due_places(
                self.store, now, now - RECENT if self.is_first else None
            ):
                found = await self._find(tenant, places, since)
                if not found.is_credible:
                    _log.error(
                        "%d of %d %s belong to no row; none is set aside. Is this the database of"
                        " these bytes?",
                        len(found.orphans),
                        found.files,
                        what,
                    )
                    break
                moved += sum([await tenant.set_aside(each) for each in found.orphans])
            else:
                self.is_first = False
        if moved:
            _log.warning("set aside %d %s that belonged to no row", moved, what)
        return moved

    async def _find(self, tenant: Tenant, places: Sequence[str], since: int) -> Found:
        """Return what some places hold that was begun `since`."""
        files, orphans = 0, list[str]()
        for place in places:
            count, unowned = await tenant.find(place, since)
            files += count
            orphans += [each for each in unowned if begun_at(each) + SETTLED <= self.clock()]
        return Found(files, files - len(orphans), orphans)

"""Leaks: bytes that no row owns, left by a process that died between the bytes and the row.

What is being written has no row yet either. But its writer holds it until the row is committed,
so under the hold, bytes without a row are nobody's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from cloudcore.clock import MICROSECONDS
from registry.blobstore.base import BlobSweeper, ObjectUnknown, StageBusy, StoredObject
from registry.blobstore.folders import SHARDS
from registry.gc.uploads import drop_staged
from registry.metadata import audit
from registry.services.context import Context

PLACES: Final = SHARDS + 1
"""The shards of objects, and what is staged."""
EVERY_SECONDS: Final = 300
"""How long a place has the patrol; all of them take it a day."""
_BATCH: Final = 500
_SETTLED: Final = 3600 * MICROSECONDS
"""Bytes younger than that are most likely being written; they are not even looked at."""
_SUSPICIOUS: Final = 20
_SUSPICIOUS_SHARE: Final = 10
_SAMPLE: Final = 1000
"""How many files the patrol looks at before it believes in a leak, if there are so many."""

_log = logging.getLogger(__name__)


class Found(NamedTuple):
    """What is stored in one place, or in several."""

    files: int
    owned: int
    """How many of them a row names."""
    leaks: Sequence[str]
    """Those that no row names, but for the young."""

    @property
    def is_credible(self) -> bool:
        """Say whether so many leaks are what crashes may have left."""
        return len(self.leaks) <= max(_SUSPICIOUS, self.files // _SUSPICIOUS_SHARE)


def together(places: Iterable[Found]) -> Found:
    """Return what several places hold in all."""
    each = list(places)
    return Found(
        sum(found.files for found in each),
        sum(found.owned for found in each),
        [leak for found in each for leak in found.leaks],
    )


async def patrol(ctx: Context, sweeper: BlobSweeper) -> int:
    """Remove the leaks of the place whose turn it is; return how many there were.

    Nobody looks on, and a place of a small registry holds few files: so a leak is believed only
    after a look at enough others, of which most, and one at least, belong to somebody.
    """
    place = ctx.clock() // (EVERY_SECONDS * MICROSECONDS) % PLACES
    seen = await find_leaks(ctx, sweeper, place)
    if not seen.leaks:
        return 0
    for other in (*range(place + 1, SHARDS), *range(min(place, SHARDS))):
        if seen.files >= _SAMPLE:
            break
        seen = together((seen, await find_leaks(ctx, sweeper, other)))
    if not (seen.owned and seen.is_credible):
        _refuse(seen)
        return 0
    removed = await remove_leaks(ctx, sweeper, place)
    if removed:
        _log.warning("removed %d stored files that belonged to no row", removed)
    return removed


async def remove_leaks(ctx: Context, sweeper: BlobSweeper, place: int) -> int:
    """Remove bytes nobody owns from a shard of objects, or, as the last place, from the staged.

    Where a tenth of a place seems to be leaks, the metadata are rather not those of these bytes
    (an older backup, another database): nothing is touched, and the log says so.
    """
    found = await find_leaks(ctx, sweeper, place)
    if not found.is_credible:
        _refuse(found)
        return 0
    removed = 0
    for object_id in found.leaks:
        removed += await _remove(ctx, object_id)
    return removed


async def find_leaks(ctx: Context, sweeper: BlobSweeper, place: int) -> Found:
    """Return what is stored in a place, and which of it seems to be nobody's; change nothing."""
    listing = sweeper.list_staged if place == SHARDS else lambda: sweeper.list_objects(place)
    files, unowned = await _find(ctx, listing)
    now = ctx.clock()
    leaks = [each for each in unowned if begun_at(each) + _SETTLED <= now]
    return Found(files, files - len(unowned), leaks)


def _refuse(found: Found) -> None:
    _log.error(
        "%d of %d stored files belong to no row; none is removed. Is this the database of these"
        " blobs? 'entrepot fsck' lists them",
        len(found.leaks),
        found.files,
    )


def begun_at(object_id: str) -> int:
    """Return when the upload of an object began, in microseconds: its id is a UUIDv7."""
    return (UUID(object_id).int >> 80) * 1000


async def _find(
    ctx: Context, listing: Callable[[], Iterator[StoredObject]]
) -> tuple[int, Sequence[str]]:
    """Return how many files are listed, and which of them no row names."""
    listed = await asyncio.to_thread(lambda: [entry.object_id for entry in listing()])
    leaks: list[str] = []
    for start in range(0, len(listed), _BATCH):
        batch = listed[start : start + _BATCH]
        owned = await ctx.database.read(audit.owned, batch)
        leaks += [object_id for object_id in batch if object_id not in owned]
    return len(listed), leaks


async def _remove(ctx: Context, object_id: str) -> bool:
    """Remove one leak, if that is what it is: asked again under the hold on its bytes."""
    try:
        staged = await asyncio.to_thread(ctx.writer.resume, object_id)
    except (StageBusy, ObjectUnknown):
        return False  # it is being written, or gone
    try:
        if await ctx.database.read(audit.owned, [object_id]):
            return False
        await asyncio.to_thread(drop_staged, staged)
        return True
    finally:
        staged.close()

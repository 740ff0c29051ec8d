"""Find orphans: stored bytes without a row, left by a process that died before it wrote the row.

Bytes that are being written have no row either, but their writer locks them until the row is
committed. So bytes that can be locked here and have no row are orphans.

If the database is the wrong one, all bytes look like orphans. So they are not deleted but set
aside, and kept for days; those that have a row are put back.

They are deleted after `gc_orphan_seconds` if they still have no row.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple
from uuid import UUID

from cloudcore.clock import MICROSECONDS
from registry.blobstore.base import (
    BlobSweeper,
    BlobWriter,
    DeletionsHeld,
    ObjectUnknown,
    Orphan,
    StageBusy,
)
from registry.errors import StoreUnavailable
from registry.gc.generations import DatabaseWentBack, check_generation
from registry.metadata.collector import audit, generations
from registry.services.context import ServiceContext

STAGED: Final = "uploads"
"""The place of staged bytes; the other places are the store's partitions of objects."""
EVERY_SECONDS: Final = 300
"""Seconds between turns. A turn scans staged bytes and one partition; 256 partitions take a day."""
RECENT: Final = 25 * 3600 * MICROSECONDS
"""Age, in microseconds, up to which a process's first turn scans objects of every partition; older
ones wait for the turn of their partition."""
_BATCH: Final = 500
SETTLED: Final = 300 * MICROSECONDS
"""Microseconds for which bytes are skipped: they are most likely being written."""
_SUSPICIOUS: Final = 20
"""Number of orphans that crashes may leave in any place."""
_SUSPICIOUS_SHARE: Final = 10
"""Orphans may be one in this many files, if that is more."""
_SAMPLE: Final = 1000
"""Files to count, if there are as many, before any is taken for an orphan."""
_NEW: Final = 3
"""Number of orphans newer than every row that a crash may leave."""

_log = logging.getLogger("registry.gc.orphans")  # the name by which operators filter


class Found(NamedTuple):
    """The files of one place, or of several."""

    files: int
    owned: int
    """Number of files with a row."""
    orphans: Sequence[str]
    """Ids without a row that no writer has locked, except recent ones."""
    accepted: int = 0
    """Number of orphans older than the last `gc accept-database`."""

    @property
    def doubtful(self) -> int:
        """Return the number of orphans newer than the last `gc accept-database`."""
        return len(self.orphans) - self.accepted

    @property
    def is_credible(self) -> bool:
        """Return True if crashes may have left this many orphans."""
        return self.doubtful <= max(_SUSPICIOUS, self.files // _SUSPICIOUS_SHARE)

    @property
    def is_foreign(self) -> bool:
        """Return True if the files seem to be of another database than this one."""
        return self.doubtful > 0 and not (self.owned and self.is_credible)


class TooNew(Exception):
    """More orphans are newer than the newest row than a crash leaves."""

    def __init__(self, count: int) -> None:
        super().__init__(
            f"{count} stored files that belong to no row are newer than the newest row: the"
            " database seems to be older than the blobs. None is moved or removed. Restore the"
            " right one; or, to go on with this one, run"
            " 'entrepot gc accept-database' (docs/garbage-collection.md)"
        )


def together(places: Iterable[Found]) -> Found:
    """Return the sums over several places."""
    each = list(places)
    return Found(
        sum(found.files for found in each),
        sum(found.owned for found in each),
        [orphan for found in each for orphan in found.orphans],
        sum(found.accepted for found in each),
    )


class OrphanScan:
    """The scans of one process: each turn sets aside orphans of staged bytes and of one partition.

    The first turn also scans recent objects of every partition, for orphans of a process that died
    just before this one began.
    """

    def __init__(self, ctx: ServiceContext, sweeper: BlobSweeper) -> None:
        self._ctx = ctx
        self._sweeper = sweeper
        self._since = ctx.clock() - RECENT
        self._is_first = True

    async def turn(self) -> int:
        """Do a turn unless another process is scanning; return how many orphans were set aside."""
        async with self._sweeper.scan_alone() as is_alone:
            return await self._scan() if is_alone else 0

    async def _scan(self) -> int:
        await tend_orphans(self._ctx, self._sweeper)
        if not await may_judge(self._ctx, self._sweeper):
            return 0
        moved = await scan(self._ctx, self._sweeper, [STAGED])
        partitions = self._sweeper.partitions()
        if self._is_first:
            moved += await scan(self._ctx, self._sweeper, partitions, since=self._since)
            self._is_first = False
        place = self._ctx.clock() // (EVERY_SECONDS * MICROSECONDS) % len(partitions)
        return moved + await scan(self._ctx, self._sweeper, [partitions[place]])


def places_of(sweeper: BlobSweeper) -> Sequence[str]:
    """Return every place: the partitions of objects, and the staged bytes."""
    return (*sweeper.partitions(), STAGED)


async def scan(
    ctx: ServiceContext, sweeper: BlobSweeper, places: Sequence[str], *, since: int = 0
) -> int:
    """Set aside the orphans of some places, of uploads begun `since`; return how many.

    A place of a small registry has few files. So count files of more places first, and set nothing
    aside unless at least one, and most of them, have a row.
    """
    found = {place: await find_orphans(ctx, sweeper, place, since=since) for place in places}
    seen = together(found.values())
    if not seen.orphans:
        return 0
    for other in _others(sweeper.partitions(), places[-1], () if since else places):
        if seen.files >= _SAMPLE:
            break
        seen = together((seen, await find_orphans(ctx, sweeper, other)))
    if seen.is_foreign:
        _refuse(seen)
        return 0
    moved = 0
    for place, there in found.items():
        if there.orphans:
            moved += await set_orphans_aside(ctx, sweeper, place, since=since)
    if moved:
        _log.warning(
            "set aside %d stored files that belonged to no row; they are kept for %d s, see"
            " 'entrepot gc orphans'",
            moved,
            ctx.delays.gc_orphan_seconds,
        )
    return moved


async def set_orphans_aside(
    ctx: ServiceContext, sweeper: BlobSweeper, place: str, *, since: int = 0
) -> int:
    """Set aside the orphans of a place; return how many.

    If more than a tenth of the files seem to be orphans, or some are newer than every row, this is
    probably not the database of these bytes (an older backup, or another one): set nothing aside,
    and log an error.
    """
    found = await find_orphans(ctx, sweeper, place, since=since)
    if not found.is_credible:
        _refuse(found)
        return 0
    try:
        await check_generation(ctx, sweeper)
        await check_newest(ctx, sweeper, found.orphans)
    except (DatabaseWentBack, TooNew) as error:
        _log.error("%s", error)
        return 0
    moved = 0
    for object_id in found.orphans:
        moved += await _set_aside(ctx, sweeper, object_id)
    return moved


async def find_orphans(
    ctx: ServiceContext, sweeper: BlobSweeper, place: str, *, since: int = 0
) -> Found:
    """Count the files of a place, and find orphans among them; change nothing.

    Skip uploads begun before `since`, in microseconds since the epoch.
    """
    files, unowned = await _find(ctx, ids_in(sweeper, place), since)
    now = ctx.clock()
    settled = [each for each in unowned if begun_at(each) + SETTLED <= now]
    orphans = [each for each in settled if not await is_held(ctx.writer, each)]
    accepted_at = await ctx.database.read(generations.accepted_at) if orphans else 0
    accepted = sum(begun_at(each) < accepted_at for each in orphans)
    return Found(files, files - len(unowned), orphans, accepted)


async def check_newest(ctx: ServiceContext, sweeper: BlobSweeper, orphans: Sequence[str]) -> None:
    """Check that few orphans are newer than the newest row.

    An older copy of the database lacks the newest rows. A crash leaves only a few such files.

    Raises:
        TooNew: more than a few files of all places are newer than every row.

    """
    newest = await ctx.database.read(generations.newest_owner)
    accepted_at = await ctx.database.read(generations.accepted_at)
    before = ctx.clock() - SETTLED

    def is_new(object_id: str) -> bool:
        return object_id > newest and accepted_at <= begun_at(object_id) <= before

    if not any(map(is_new, orphans)):
        return
    count = 0
    for place in places_of(sweeper):
        async for each in ids_in(sweeper, place):
            count += is_new(each) and not await is_held(ctx.writer, each)
    if count > _NEW:
        raise TooNew(count)


def begun_at(object_id: str) -> int:
    """Return when the upload of an object began, in microseconds since the epoch (UUIDv7)."""
    return (UUID(object_id).int >> 80) * 1000


async def is_held(writer: BlobWriter, object_id: str) -> bool:
    """Return True if these bytes are locked by a writer, or gone."""
    try:
        staged = await writer.resume(object_id)
    except (StageBusy, ObjectUnknown):
        return True
    await staged.aclose()
    return False


async def may_judge(ctx: ServiceContext, sweeper: BlobSweeper) -> bool:
    """Return False, and log it, if the database is older than the blobs, or another one."""
    try:
        await check_generation(ctx, sweeper)
    except DatabaseWentBack as error:
        _log.error("%s", error)
        return False
    return True


def _others(partitions: Sequence[str], place: str, places: Sequence[str]) -> Iterator[str]:
    """Yield the partitions except `places`, beginning after `place`."""
    start = partitions.index(place) + 1 if place in partitions else 0
    every = (*partitions[start:], *partitions[:start])
    return (other for other in every if other not in places)


def _refuse(found: Found) -> None:
    _log.error(
        "%d of %d stored files belong to no row; none is removed. Is this the database of these"
        " blobs? 'entrepot fsck' lists them",
        found.doubtful,
        found.files,
    )


async def ids_in(sweeper: BlobSweeper, place: str) -> AsyncIterator[str]:
    """Yield the ids of what a place holds."""
    if place == STAGED:
        async for entry in sweeper.list_staged():
            yield entry.object_id
    else:
        async for object_id in sweeper.list_ids(place):
            yield object_id


async def _find(
    ctx: ServiceContext, ids: AsyncIterator[str], since: int
) -> tuple[int, Sequence[str]]:
    """Return how many of `ids` were begun `since`, and those of them without a row."""
    listed = [each async for each in ids if not since or begun_at(each) >= since]
    orphans: list[str] = []
    for start in range(0, len(listed), _BATCH):
        batch = listed[start : start + _BATCH]
        owned = await ctx.database.read(audit.owned, batch)
        orphans += [object_id for object_id in batch if object_id not in owned]
    return len(listed), orphans


async def _set_aside(ctx: ServiceContext, sweeper: BlobSweeper, object_id: str) -> bool:
    """Lock an orphan and set it aside, unless it has a row; return True if it was set aside."""
    try:
        staged = await ctx.writer.resume(object_id)
    except (StageBusy, ObjectUnknown):
        return False  # it is being written, or gone
    async with aclosing(staged):
        if await ctx.database.read(audit.owned, [object_id]):
            return False
        return await sweeper.set_aside(object_id, ctx.clock())


async def list_orphans(sweeper: BlobSweeper) -> Sequence[Orphan]:
    """Return every orphan, the oldest first."""
    return sorted(
        [orphan async for orphan in sweeper.list_orphans()],
        key=lambda orphan: (orphan.set_aside_at, orphan.object_id),
    )


async def take_back_owned(ctx: ServiceContext, sweeper: BlobSweeper) -> int:
    """Put back every orphan that has a row; return how many.

    Log those that the store fails to put back, and go on with the others.
    """
    orphans = await list_orphans(sweeper)
    count = failed = 0
    for start in range(0, len(orphans), _BATCH):
        batch = [orphan.object_id for orphan in orphans[start : start + _BATCH]]
        for object_id in await ctx.database.read(audit.owned, batch):
            try:
                count += await sweeper.take_back(object_id)
            except StoreUnavailable as error:
                failed, refusal = failed + 1, error
    if failed:
        _log.error("%d stored files that rows own could not be put back: %s", failed, refusal)
    if count:
        _log.warning("put back %d stored files that had been set aside: rows own them", count)
    return count


async def remove_overdue(ctx: ServiceContext, sweeper: BlobSweeper) -> int:
    """Delete the orphans that were set aside long enough ago and have no row; return how many.

    Delete nothing if the database is not the one last used with the blobs. Log those that the store
    fails to delete, and go on with the others.
    """
    before = ctx.clock() - ctx.delays.orphan
    overdue = [each for each in await list_orphans(sweeper) if each.set_aside_at <= before]
    if not overdue:
        return 0
    try:
        await check_generation(ctx, sweeper)
    except DatabaseWentBack as error:
        _log.error("%s", error)
        return 0
    count = failed = 0
    for start in range(0, len(overdue), _BATCH):
        batch = overdue[start : start + _BATCH]
        owned = await ctx.database.read(audit.owned, [orphan.object_id for orphan in batch])
        for orphan in batch:
            if orphan.object_id in owned:
                continue
            try:
                await sweeper.delete_orphan(orphan)
                count += 1
            except DeletionsHeld:
                return count  # a turn after the backup goes on
            except StoreUnavailable as error:
                failed, refusal = failed + 1, error
    if failed:
        _log.error("%d stored files that belong to no row cannot be deleted: %s", failed, refusal)
    if count:
        _log.warning("deleted %d stored files that had been set aside and belong to no row", count)
    return count


async def tend_orphans(ctx: ServiceContext, sweeper: BlobSweeper) -> None:
    """Put back the orphans that have a row, and delete the others when their time is over."""
    await take_back_owned(ctx, sweeper)
    await remove_overdue(ctx, sweeper)

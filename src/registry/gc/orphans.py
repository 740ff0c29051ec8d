"""Find orphans: stored bytes without a row, left by a process that died before it wrote the row.

Bytes that are being written have no row either, but their writer locks them until the row is
committed. So bytes that can be locked here and have no row are orphans.

With the wrong database, all bytes look like orphans. So orphans are not deleted at once but set
aside for days; those that get a row are put back. Orphans that still have no row after
`gc_orphan_seconds` are deleted.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.objects.stored_rows import Owned
from registry.blobstore.base import DeletionsHeld, ObjectUnknown, Orphan, StageBusy
from registry.blobstore.store import BlobSweeper, BlobWriter
from registry.errors import StoreUnavailable
from registry.gc.database_rollback import DatabaseWentBack, check_generation
from registry.metadata.collector import audit, generations
from registry.services.context import ServiceContext

STAGED: Final = "uploads"
"""The place of staged bytes; all other places are the store's partitions of objects."""
EVERY_SECONDS: Final = 300
"""Seconds between turns. A turn scans staged bytes and one of 256 partitions, so all take a day."""
RECENT: Final = 25 * 3600 * MICROSECONDS
"""Microseconds. A process's first turn scans objects up to this age in every partition; older
objects wait for the turn of their partition."""
_BATCH: Final = 500
SETTLED: Final = 300 * MICROSECONDS
"""Age in microseconds below which bytes are skipped: they are most likely being written."""
_SUSPICIOUS: Final = 20
"""Maximum number of orphans in a place that crashes may explain."""
_SUSPICIOUS_SHARE: Final = 10
"""One orphan in this many files may also be explained by crashes, if that is more."""
_SAMPLE: Final = 1000
"""Number of files to count, if there are as many, before any file is taken for an orphan."""
_NEW: Final = 3
"""Maximum number of orphans newer than every row that crashes may explain."""

_log = logging.getLogger(__name__)


class FoundOrphans(NamedTuple):
    """The files and orphans counted in one place (a partition or `STAGED`), or in several."""

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
        """Return True if crashes may explain this many orphans."""
        return self.doubtful <= max(_SUSPICIOUS, self.files // _SUSPICIOUS_SHARE)

    @property
    def is_foreign(self) -> bool:
        """Return True if the files seem to belong to another database."""
        return self.doubtful > 0 and not (self.owned and self.is_credible)


class TooNew(Exception):
    """More orphans are newer than the newest row than crashes can explain."""

    def __init__(self, count: int) -> None:
        super().__init__(
            f"{count} stored files that belong to no row are newer than the newest row: the"
            " database seems to be older than the blobs. None is moved or removed. Restore the"
            " right one; or, to go on with this one, run"
            " 'entrepot gc accept-database' (docs/how-to/repair.md)"
        )


def together(places: Iterable[FoundOrphans]) -> FoundOrphans:
    """Add up the counts of several places."""
    each = list(places)
    return FoundOrphans(
        sum(found.files for found in each),
        sum(found.owned for found in each),
        [orphan for found in each for orphan in found.orphans],
        sum(found.accepted for found in each),
    )


@dataclass(frozen=True, slots=True)
class Tenant:
    """A user of a store (blobs or buckets), with the actions on the store's bytes without a row."""

    what: str
    sweeper: BlobSweeper
    writer: BlobWriter
    clock: Clock
    owned: Owned
    is_right_database: Callable[[], Awaitable[bool]]
    """Returns False, and logs that, if the bytes do not belong to this database."""
    kept: int
    """Microseconds between setting an orphan aside and deleting it."""

    async def find(self, place: str, since: int) -> tuple[int, Sequence[str]]:
        """Return the number of a place's files, and the ids without a row among them.

        Count only files begun at `since` (microseconds since the epoch) or later; 0 means all.
        """
        ids = ids_in(self.sweeper, place)
        listed = [each async for each in ids if not since or begun_at(each) >= since]
        return len(listed), await self._without_rows(listed)

    async def set_aside(self, object_id: str) -> bool:
        """Lock an orphan and set it aside; return False if it has a row, is locked or is gone."""
        try:
            staged = await self.writer.resume(object_id)
        except (StageBusy, ObjectUnknown):
            return False  # it is being written, or gone
        async with aclosing(staged):
            if await self.owned([object_id]):
                return False
            return await self.sweeper.set_aside(object_id, self.clock())

    async def settle_orphans(self) -> None:
        """Put back orphans that have a row; delete others that were set aside long enough ago."""
        await self.take_back()
        await self.remove_overdue()

    async def take_back(self) -> int:
        """Put back every orphan that has a row; return their number.

        If the store fails for some, log that and continue.
        """
        orphans = [orphan.object_id for orphan in await list_orphans(self.sweeper)]
        count = failed = 0
        for start in range(0, len(orphans), _BATCH):
            for object_id in await self.owned(orphans[start : start + _BATCH]):
                try:
                    count += await self.sweeper.take_back(object_id)
                except StoreUnavailable as error:
                    failed, refusal = failed + 1, error
        if failed:
            _log.error("%d %s that rows own could not be put back: %s", failed, self.what, refusal)
        if count:
            _log.warning("put back %d %s that had been set aside: rows own them", count, self.what)
        return count

    async def remove_overdue(self) -> int:
        """Delete orphans that were set aside long enough ago and have no row; return their number.

        Delete nothing if this is not the last database used with the bytes. If the store fails for
        some, log that and continue.
        """
        before = self.clock() - self.kept
        overdue = {
            each.object_id: each
            for each in await list_orphans(self.sweeper)
            if each.set_aside_at <= before
        }
        if not overdue or not await self.is_right_database():
            return 0
        count = failed = 0
        for object_id in await self._without_rows(list(overdue)):
            try:
                await self.sweeper.delete_orphan(overdue[object_id])
                count += 1
            except DeletionsHeld:
                return count  # a turn after the backup goes on
            except StoreUnavailable as error:
                failed, refusal = failed + 1, error
        if failed:
            words = "%d %s that belong to no row cannot be deleted: %s"
            _log.error(words, failed, self.what, refusal)
        if count:
            words = "deleted %d %s that had been set aside and belong to no row"
            _log.warning(words, count, self.what)
        return count

    async def _without_rows(self, object_ids: Sequence[str]) -> list[str]:
        found: list[str] = []
        for start in range(0, len(object_ids), _BATCH):
            batch = object_ids[start : start + _BATCH]
            known = await self.owned(batch)
            found += [each for each in batch if each not in known]
        return found


def blobs_of(ctx: ServiceContext, sweeper: BlobSweeper) -> Tenant:
    """Return the tenant for the store of blobs."""
    return Tenant(
        "stored files",
        sweeper,
        ctx.writer,
        ctx.clock,
        lambda ids: ctx.database.read(audit.owned, ids),
        partial(is_right_database, ctx, sweeper),
        ctx.delays.orphan,
    )


def due_places(
    sweeper: BlobSweeper, now: int, since: int | None
) -> Iterator[tuple[Sequence[str], int]]:
    """Yield (places, begun) for a turn: scan the files there that were begun at `begun` or later.

    Times are in microseconds since the epoch; 0 means all files. `since` is None except in the
    first turn of a process, which also scans the files of all partitions begun since then.
    """
    partitions = sweeper.partitions()
    yield [STAGED], 0
    if since is not None:
        yield partitions, since
    yield [partitions[now // (EVERY_SECONDS * MICROSECONDS) % len(partitions)]], 0


class OrphanScan:
    """The orphan scans of one process: each turn scans the staged bytes and one partition.

    The first turn also scans recent objects of every partition, for orphans of a process that died
    just before this one began.
    """

    def __init__(self, ctx: ServiceContext, sweeper: BlobSweeper) -> None:
        self._ctx = ctx
        self._sweeper = sweeper
        self._since = ctx.clock() - RECENT
        self._is_first = True

    async def turn(self) -> int:
        """Do a turn, unless another process is scanning; return the number of orphans set aside."""
        async with self._sweeper.scan_alone() as is_alone:
            return await self._scan() if is_alone else 0

    async def _scan(self) -> int:
        await blobs_of(self._ctx, self._sweeper).settle_orphans()
        if not await is_right_database(self._ctx, self._sweeper):
            return 0
        moved = 0
        since = self._since if self._is_first else None
        for places, begun in due_places(self._sweeper, self._ctx.clock(), since):
            moved += await scan(self._ctx, self._sweeper, places, since=begun)
        self._is_first = False
        return moved


def places_of(sweeper: BlobSweeper) -> Sequence[str]:
    """Return every place to scan: the partitions of objects, and `STAGED`."""
    return (*sweeper.partitions(), STAGED)


async def scan(
    ctx: ServiceContext, sweeper: BlobSweeper, places: Sequence[str], *, since: int = 0
) -> int:
    """Set aside the orphans of some places; return their number.

    Skip files whose upload began before `since` (microseconds since the epoch).

    In a small registry a place has few files. So files in more places are counted first, and
    nothing is set aside unless at least one file, and most of them, have a row.
    """
    found = {place: await find_orphans(ctx, sweeper, place, since=since) for place in places}
    seen = together(found.values())
    if not seen.orphans:
        return 0
    for other in _other_partitions(sweeper.partitions(), places[-1], () if since else places):
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
    """Set aside the orphans of a partition or `STAGED`; return their number.

    If more than a tenth of the files seem to be orphans, or some are newer than every row, the
    bytes probably do not belong to this database (an older backup, or another database): then set
    nothing aside, and log an error.
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
    tenant, moved = blobs_of(ctx, sweeper), 0
    for object_id in found.orphans:
        moved += await tenant.set_aside(object_id)
    return moved


async def find_orphans(
    ctx: ServiceContext, sweeper: BlobSweeper, place: str, *, since: int = 0
) -> FoundOrphans:
    """Count the files of a partition or `STAGED`, and find the orphans among them; alter nothing.

    Files whose upload began before `since` (microseconds since the epoch) are not counted. Files
    that are recent or locked by a writer are no orphans.
    """
    files, unowned = await blobs_of(ctx, sweeper).find(place, since)
    now = ctx.clock()
    settled = [each for each in unowned if begun_at(each) + SETTLED <= now]
    orphans = [each for each in settled if not await is_held(ctx.writer, each)]
    accepted_at = await ctx.database.read(generations.accepted_at) if orphans else 0
    accepted = sum(begun_at(each) < accepted_at for each in orphans)
    return FoundOrphans(files, files - len(unowned), orphans, accepted)


async def check_newest(ctx: ServiceContext, sweeper: BlobSweeper, orphans: Sequence[str]) -> None:
    """Check that few orphans are newer than the newest row.

    An older copy of the database lacks the newest rows, while a crash leaves only a few files
    without a row.

    Raise `TooNew` if more than a few orphans, in all places together, are newer than every row.
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
    """Return True if a writer has locked these bytes, or they were deleted."""
    try:
        staged = await writer.resume(object_id)
    except (StageBusy, ObjectUnknown):
        return True
    await staged.aclose()
    return False


async def is_right_database(ctx: ServiceContext, sweeper: BlobSweeper) -> bool:
    """Return False, and log why, if the database is older than the blobs, or is not theirs."""
    try:
        await check_generation(ctx, sweeper)
    except DatabaseWentBack as error:
        _log.error("%s", error)
        return False
    return True


def _other_partitions(
    partitions: Sequence[str], place: str, places: Sequence[str]
) -> Iterator[str]:
    """Yield the partitions that are not in `places`; begin after the partition `place`."""
    start = partitions.index(place) + 1 if place in partitions else 0
    every = (*partitions[start:], *partitions[:start])
    return (other for other in every if other not in places)


def _refuse(found: FoundOrphans) -> None:
    _log.error(
        "%d of %d stored files belong to no row; none is removed. Is this the database of these"
        " blobs? 'entrepot fsck' lists them",
        found.doubtful,
        found.files,
    )


async def ids_in(sweeper: BlobSweeper, place: str) -> AsyncIterator[str]:
    """Yield the ids of the objects in a partition, or of the staged bytes."""
    if place == STAGED:
        async for entry in sweeper.list_staged():
            yield entry.object_id
    else:
        async for object_id in sweeper.list_ids(place):
            yield object_id


async def list_orphans(sweeper: BlobSweeper) -> Sequence[Orphan]:
    """Return all orphans, sorted by the time of setting aside."""
    return sorted(
        [orphan async for orphan in sweeper.list_orphans()],
        key=lambda orphan: (orphan.set_aside_at, orphan.object_id),
    )


async def take_back_owned(ctx: ServiceContext, sweeper: BlobSweeper) -> int:
    """Put back every orphan of the blobs that has a row; return their number."""
    return await blobs_of(ctx, sweeper).take_back()

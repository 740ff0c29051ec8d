"""Find orphans: bytes that no row owns, left by a process that died before it wrote the row.

Bytes that are being written have no row yet either. But their writer holds them until the row is
committed, so bytes that can be held here and have no row are orphans.

To a wrong database all bytes look like orphans. So they are not deleted but set aside:
`registry.gc.orphans.quarantine` keeps them for days and puts them back when their row turns up.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple
from uuid import UUID

from cloudcore.clock import MICROSECONDS
from registry.blobstore.base import BlobSweeper, ObjectUnknown, StageBusy
from registry.gc.generations import DatabaseWentBack, check_generation
from registry.gc.orphans.quarantine import tend_orphans
from registry.metadata.collector import audit, generations
from registry.services.context import ServiceContext

STAGED: Final = "uploads"
"""The place of what is staged; the other places are the store's partitions of objects."""
EVERY_SECONDS: Final = 300
"""Time between turns. A turn is over one partition, so 256 take a day, and over what is staged."""
RECENT: Final = 25 * 3600 * MICROSECONDS
"""Age of the uploads that a process's first turn looks at; older orphans wait for the turn of their
partition."""
_BATCH: Final = 500
_SETTLED: Final = 300 * MICROSECONDS
"""Bytes younger than that are most likely being written; they are not even looked at."""
_SUSPICIOUS: Final = 20
_SUSPICIOUS_SHARE: Final = 10
_SAMPLE: Final = 1000
"""How many files the scan looks at before it believes in an orphan, if there are so many."""
_NEW: Final = 3
"""Orphans newer than every row that a crash may leave."""

_log = logging.getLogger("registry.gc.orphans.scan")  # the name by which operators filter


class Found(NamedTuple):
    """What is stored in one place, or in several."""

    files: int
    owned: int
    """How many of them a row names."""
    orphans: Sequence[str]
    """Ids that no row names and no writer holds, except recent ones."""
    accepted: int = 0
    """How many of these are older than the last `gc accept-database`."""

    @property
    def doubtful(self) -> int:
        """Return how many orphans came after the last `gc accept-database`."""
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
    """More orphans than crashes leave are newer than all that the database knows of."""

    def __init__(self, count: int) -> None:
        super().__init__(
            f"{count} stored files that belong to no row are newer than the newest row: the"
            " database seems to be older than the blobs. None is moved or removed. Restore the"
            " right one; or, to go on with this one, run"
            " 'entrepot gc accept-database' (docs/garbage-collection.md)"
        )


def together(places: Iterable[Found]) -> Found:
    """Return what several places hold in all."""
    each = list(places)
    return Found(
        sum(found.files for found in each),
        sum(found.owned for found in each),
        [orphan for found in each for orphan in found.orphans],
        sum(found.accepted for found in each),
    )


class OrphanScan:
    """The turns of one process: set orphans aside, of what is staged and of one partition a turn.

    The first turn is over recent uploads in every partition: a process that died just before this
    one began left its orphans there.
    """

    def __init__(self, ctx: ServiceContext, sweeper: BlobSweeper) -> None:
        self._ctx = ctx
        self._sweeper = sweeper
        self._since = ctx.clock() - RECENT
        self._is_first = True

    async def turn(self) -> int:
        """Take a turn, unless another process does; return how many orphans were set aside."""
        async with self._sweeper.scan_alone() as is_alone:
            return await self._scan() if is_alone else 0

    async def _scan(self) -> int:
        await tend_orphans(self._ctx, self._sweeper)
        if not await _may_judge(self._ctx, self._sweeper):
            return 0
        moved = await scan(self._ctx, self._sweeper, [STAGED])
        partitions = self._sweeper.partitions()
        if self._is_first:
            moved += await scan(self._ctx, self._sweeper, partitions, since=self._since)
            self._is_first = False
        place = self._ctx.clock() // (EVERY_SECONDS * MICROSECONDS) % len(partitions)
        return moved + await scan(self._ctx, self._sweeper, [partitions[place]])


def places_of(sweeper: BlobSweeper) -> Sequence[str]:
    """Return every place: the partitions of objects, and what is staged."""
    return (*sweeper.partitions(), STAGED)


async def scan(
    ctx: ServiceContext, sweeper: BlobSweeper, places: Sequence[str], *, since: int = 0
) -> int:
    """Set the orphans of some places aside, of uploads begun `since`; return how many there were.

    A place of a small registry holds few files, so orphans are set aside only after counting a
    sample of files from other places: at least one, and most of them, must belong to a row.
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
    """Set aside the orphans of a place; return how many there were.

    Where more than a tenth of a place seems to be orphans, or some are newer than every row, this
    is probably not the database of these bytes (an older backup, another database): touch nothing,
    and log it.
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
    """Return what is stored in a place, and which of it seems to be orphans; change nothing.

    Only uploads begun `since` (microseconds since the epoch) are looked at.
    """
    files, unowned = await _find(ctx, _ids(sweeper, place), since)
    now = ctx.clock()
    settled = [each for each in unowned if begun_at(each) + _SETTLED <= now]
    orphans = [each for each in settled if not await _is_held(ctx, each)]
    accepted_at = await ctx.database.read(generations.accepted_at) if orphans else 0
    accepted = sum(begun_at(each) < accepted_at for each in orphans)
    return Found(files, files - len(unowned), orphans, accepted)


async def check_newest(ctx: ServiceContext, sweeper: BlobSweeper, orphans: Sequence[str]) -> None:
    """Check that few orphans are newer than the newest row.

    An older copy of a database lacks the newest rows. A crash leaves only a few such files.

    Raises:
        TooNew: more than a few files in any place are newer than every row.

    """
    newest = await ctx.database.read(generations.newest_owner)
    accepted_at = await ctx.database.read(generations.accepted_at)
    before = ctx.clock() - _SETTLED

    def is_new(object_id: str) -> bool:
        return object_id > newest and accepted_at <= begun_at(object_id) <= before

    if not any(map(is_new, orphans)):
        return
    count = 0
    for place in places_of(sweeper):
        async for each in _ids(sweeper, place):
            count += is_new(each) and not await _is_held(ctx, each)
    if count > _NEW:
        raise TooNew(count)


def begun_at(object_id: str) -> int:
    """Return when the upload of an object began, in microseconds: its id is a UUIDv7."""
    return (UUID(object_id).int >> 80) * 1000


async def _may_judge(ctx: ServiceContext, sweeper: BlobSweeper) -> bool:
    try:
        await check_generation(ctx, sweeper)
    except DatabaseWentBack as error:
        _log.error("%s", error)
        return False
    return True


def _others(partitions: Sequence[str], place: str, places: Sequence[str]) -> Iterator[str]:
    """Yield the partitions other than `places`, those after `place` first."""
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


async def _ids(sweeper: BlobSweeper, place: str) -> AsyncIterator[str]:
    if place == STAGED:
        async for entry in sweeper.list_staged():
            yield entry.object_id
    else:
        async for object_id in sweeper.list_ids(place):
            yield object_id


async def _find(
    ctx: ServiceContext, ids: AsyncIterator[str], since: int
) -> tuple[int, Sequence[str]]:
    """Return how many files are listed, and which of them no row names."""
    listed = [each async for each in ids if not since or begun_at(each) >= since]
    orphans: list[str] = []
    for start in range(0, len(listed), _BATCH):
        batch = listed[start : start + _BATCH]
        owned = await ctx.database.read(audit.owned, batch)
        orphans += [object_id for object_id in batch if object_id not in owned]
    return len(listed), orphans


async def _is_held(ctx: ServiceContext, object_id: str) -> bool:
    """Return True if these bytes are being written, or are gone."""
    try:
        staged = await ctx.writer.resume(object_id)
    except (StageBusy, ObjectUnknown):
        return True
    await staged.aclose()
    return False


async def _set_aside(ctx: ServiceContext, sweeper: BlobSweeper, object_id: str) -> bool:
    """Set one orphan aside, if it still has no row under the hold on its bytes."""
    try:
        staged = await ctx.writer.resume(object_id)
    except (StageBusy, ObjectUnknown):
        return False  # it is being written, or gone
    async with aclosing(staged):
        if await ctx.database.read(audit.owned, [object_id]):
            return False
        return await sweeper.set_aside(object_id, ctx.clock())

"""Leaks: bytes that no row owns, left by a process that died between the bytes and the row.

Bytes that are being written have no row yet either. But their writer holds them until the row is
committed, so bytes that can be held here and have no row are leaks.

To a wrong database all bytes look like leaks. So leaks are not deleted: they become orphans, which
`registry.gc.orphans.quarantine` keeps for days and puts back when their row turns up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from cloudcore.clock import MICROSECONDS
from registry.blobstore.base import BlobSweeper, ObjectUnknown, StageBusy
from registry.blobstore.folders import SHARDS
from registry.gc.generations import DatabaseWentBack, check_generation
from registry.gc.orphans.quarantine import tend_orphans
from registry.metadata.collector import audit, generations
from registry.services.context import ServiceContext

PLACES: Final = SHARDS + 1
"""The shards of objects, and what is staged."""
EVERY_SECONDS: Final = 300
"""Time between turns. A turn is over one shard, so all take a day, and over what is staged."""
RECENT: Final = 25 * 3600 * MICROSECONDS
"""Age of the uploads that a process's first turn looks at; older leaks wait for the turn of their
shard."""
_BATCH: Final = 500
_SETTLED: Final = 300 * MICROSECONDS
"""Bytes younger than that are most likely being written; they are not even looked at."""
_SUSPICIOUS: Final = 20
_SUSPICIOUS_SHARE: Final = 10
_SAMPLE: Final = 1000
"""How many files the patrol looks at before it believes in a leak, if there are so many."""
_NEW: Final = 3
"""Leaks newer than every row that a crash may leave."""

_log = logging.getLogger(__name__)


class Found(NamedTuple):
    """What is stored in one place, or in several."""

    files: int
    owned: int
    """How many of them a row names."""
    leaks: Sequence[str]
    """Ids that no row names and no writer holds, except recent ones."""
    accepted: int = 0
    """How many of these are older than the last `gc accept-database`."""

    @property
    def doubtful(self) -> int:
        """Return how many leaks came after the last `gc accept-database`."""
        return len(self.leaks) - self.accepted

    @property
    def is_credible(self) -> bool:
        """Return True if crashes may have left this many leaks."""
        return self.doubtful <= max(_SUSPICIOUS, self.files // _SUSPICIOUS_SHARE)

    @property
    def is_foreign(self) -> bool:
        """Return True if the files seem to be of another database than this one."""
        return self.doubtful > 0 and not (self.owned and self.is_credible)


class TooNew(Exception):
    """More leaks than crashes leave are newer than all that the database knows of."""

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
        [leak for found in each for leak in found.leaks],
        sum(found.accepted for found in each),
    )


class Patrol:
    """The turns of one process: set leaks aside, in what is staged and in one shard a turn.

    The first turn is over recent uploads in every shard: a process that died just before this one
    began left its leaks there.
    """

    def __init__(self, ctx: ServiceContext, sweeper: BlobSweeper) -> None:
        self._ctx = ctx
        self._sweeper = sweeper
        self._since = ctx.clock() - RECENT
        self._is_first = True

    async def turn(self) -> int:
        """Take a turn, unless another process does; return how many leaks were set aside."""
        with self._sweeper.scan_alone() as is_alone:
            return await self._scan() if is_alone else 0

    async def _scan(self) -> int:
        await tend_orphans(self._ctx, self._sweeper)
        if not await _may_judge(self._ctx, self._sweeper):
            return 0
        moved = await patrol(self._ctx, self._sweeper, [SHARDS])
        if self._is_first:
            moved += await patrol(self._ctx, self._sweeper, range(SHARDS), since=self._since)
            self._is_first = False
        place = self._ctx.clock() // (EVERY_SECONDS * MICROSECONDS) % SHARDS
        return moved + await patrol(self._ctx, self._sweeper, [place])


async def patrol(
    ctx: ServiceContext, sweeper: BlobSweeper, places: Sequence[int], *, since: int = 0
) -> int:
    """Set the leaks of some places aside, of uploads begun `since`; return how many there were.

    A place of a small registry holds few files, so leaks are set aside only after counting a sample
    of files from other places: at least one, and most of them, must belong to a row.
    """
    found = {place: await find_leaks(ctx, sweeper, place, since=since) for place in places}
    seen = together(found.values())
    if not seen.leaks:
        return 0
    for other in _others(places[-1], () if since else places):
        if seen.files >= _SAMPLE:
            break
        seen = together((seen, await find_leaks(ctx, sweeper, other)))
    if seen.is_foreign:
        _refuse(seen)
        return 0
    moved = 0
    for place, leaks in found.items():
        if leaks.leaks:
            moved += await quarantine_leaks(ctx, sweeper, place, since=since)
    if moved:
        _log.warning(
            "set aside %d stored files that belonged to no row; they are kept for %d s, see"
            " 'entrepot gc orphans'",
            moved,
            ctx.delays.gc_orphan_seconds,
        )
    return moved


async def quarantine_leaks(
    ctx: ServiceContext, sweeper: BlobSweeper, place: int, *, since: int = 0
) -> int:
    """Set aside the leaks of a shard of objects, or, in the last place, of what is staged.

    Where more than a tenth of a place seems to be leaks, or some are newer than every row, this is
    probably not the database of these bytes (an older backup, another database): touch nothing,
    and log it.
    """
    found = await find_leaks(ctx, sweeper, place, since=since)
    if not found.is_credible:
        _refuse(found)
        return 0
    try:
        await check_generation(ctx, sweeper)
        await check_newest(ctx, sweeper, found.leaks)
    except (DatabaseWentBack, TooNew) as error:
        _log.error("%s", error)
        return 0
    moved = 0
    for object_id in found.leaks:
        moved += await _set_aside(ctx, sweeper, object_id)
    return moved


async def find_leaks(
    ctx: ServiceContext, sweeper: BlobSweeper, place: int, *, since: int = 0
) -> Found:
    """Return what is stored in a place, and which of it seems to be leaks; change nothing.

    Only uploads begun `since` (microseconds since the epoch) are looked at.
    """
    files, unowned = await _find(ctx, lambda: _ids(sweeper, place), since)
    now = ctx.clock()
    settled = [each for each in unowned if begun_at(each) + _SETTLED <= now]
    leaks = await asyncio.to_thread(lambda: [each for each in settled if not _is_held(ctx, each)])
    accepted_at = await ctx.database.read(generations.accepted_at) if leaks else 0
    accepted = sum(begun_at(each) < accepted_at for each in leaks)
    return Found(files, files - len(unowned), leaks, accepted)


async def check_newest(ctx: ServiceContext, sweeper: BlobSweeper, leaks: Sequence[str]) -> None:
    """Check that few leaks are newer than the newest row.

    An older copy of a database lacks the newest rows. A crash leaves only a few such files.

    Raises:
        TooNew: more than a few files in any place are newer than every row.

    """
    newest = await ctx.database.read(generations.newest_owner)
    accepted_at = await ctx.database.read(generations.accepted_at)
    before = ctx.clock() - _SETTLED

    def is_new(object_id: str) -> bool:
        return object_id > newest and accepted_at <= begun_at(object_id) <= before

    def count() -> int:
        stored = (each for place in range(PLACES) for each in _ids(sweeper, place))
        return sum(is_new(each) and not _is_held(ctx, each) for each in stored)

    if any(map(is_new, leaks)):
        new = await asyncio.to_thread(count)
        if new > _NEW:
            raise TooNew(new)


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


def _others(place: int, places: Sequence[int]) -> Iterator[int]:
    """Yield the shards other than `places`, the next ones first."""
    every = (*range(place + 1, SHARDS), *range(min(place + 1, SHARDS)))
    return (other for other in every if other not in places)


def _refuse(found: Found) -> None:
    _log.error(
        "%d of %d stored files belong to no row; none is removed. Is this the database of these"
        " blobs? 'entrepot fsck' lists them",
        found.doubtful,
        found.files,
    )


def _ids(sweeper: BlobSweeper, place: int) -> Iterator[str]:
    if place == SHARDS:
        return (entry.object_id for entry in sweeper.list_staged())
    return sweeper.list_ids(place)


async def _find(
    ctx: ServiceContext, listing: Callable[[], Iterator[str]], since: int
) -> tuple[int, Sequence[str]]:
    """Return how many files are listed, and which of them no row names."""
    listed = await asyncio.to_thread(
        lambda: [each for each in listing() if not since or begun_at(each) >= since]
    )
    leaks: list[str] = []
    for start in range(0, len(listed), _BATCH):
        batch = listed[start : start + _BATCH]
        owned = await ctx.database.read(audit.owned, batch)
        leaks += [object_id for object_id in batch if object_id not in owned]
    return len(listed), leaks


def _is_held(ctx: ServiceContext, object_id: str) -> bool:
    """Return True if these bytes are being written, or are gone. Blocks briefly."""
    try:
        ctx.writer.resume(object_id).close()
    except (StageBusy, ObjectUnknown):
        return True
    return False


async def _set_aside(ctx: ServiceContext, sweeper: BlobSweeper, object_id: str) -> bool:
    """Set one leak aside, if it still has no row under the hold on its bytes."""
    try:
        staged = await asyncio.to_thread(ctx.writer.resume, object_id)
    except (StageBusy, ObjectUnknown):
        return False  # it is being written, or gone
    try:
        if await ctx.database.read(audit.owned, [object_id]):
            return False
        return await asyncio.to_thread(sweeper.set_aside, object_id, ctx.clock())
    finally:
        staged.close()

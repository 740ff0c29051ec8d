"""The scrub in the background: every stored byte is read once per period, at a limited rate.

Blobs and the pieces of buckets are read in turns, starting with the one verified longest ago.
Progress is `verified_at` in each row, so any process continues after another died; only the blob
that was being read is read again. Turns start with blobs and with pieces alternately, so that
neither waits for all of the other. Manifests have few bytes, so one turn reads all of them.

``entrepot scrub`` reads a registry, or some repositories, from beginning to end (`scrub_all`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from cloudcore.clock import Clock
from cloudcore.db.base import Connection, Database
from cloudcore.errors import NotFound
from cloudcore.jobs.metrics import chores
from cloudcore.jobs.schedule import Scheduled
from cloudcore.objects.stored_rows import FIRST, ObjectRow, StoredRows, StoredTotals
from registry.blobstore.base import DeletionsHeld
from registry.blobstore.store import BlobReader, BlobStore
from registry.counters import SCRUBBED_BYTES, SCRUBBED_DAMAGED, SCRUBBED_OBJECTS
from registry.errors import StoreUnavailable
from registry.gc.database_rollback import DatabaseWentBack, check_generation
from registry.gc.manifest_check import FoundManifest, ManifestCheck, all_manifests, manifests_of
from registry.gc.object_check import (
    BLOBS,
    PIECES,
    CheckedObjects,
    CheckProgress,
    DamagedPiece,
    FoundDamage,
    ObjectCheck,
    Pace,
    report_damage,
)
from registry.metadata.collector import audit, scrub
from registry.oci.reference import Name
from registry.services.context import ServiceContext
from registry.settings.groups import Scrubbing

OBJECT_CHORE: Final = "registry.scrub"
EVERY_SECONDS: Final = 300
"""Seconds between the starts of turns."""
LONGEST_SECONDS: Final = 7 * 24 * 3600
"""Time limit of a turn, enough to read the largest blob."""
_TURN_SECONDS: Final = 600
"""Time after which a turn starts to read no further blob; then another process may continue."""
_LOOK_SECONDS: Final = 10.0
"""Time between two checks whether a backup is under way; on PostgreSQL each takes a connection."""
_PAGE: Final = 100
_SUSPICIOUS: Final = 20
"""If this many blobs are damaged before an intact one, the disk is probably not mounted."""
_LOGGED: Final = 20
"""Images of a damaged blob that are named in the log."""

_log = logging.getLogger(__name__)


def scrub_chores(
    ctx: ServiceContext, store: BlobStore, scrubbing: Scrubbing, buckets: BlobStore | None = None
) -> Sequence[Scheduled]:
    """Return the chores that scrub `store` and, if given, `buckets`; empty if the scrub is off."""
    if not scrubbing.scrub_rate_bytes:
        return ()
    objects = ObjectScrub(ctx, store, scrubbing, buckets)
    return (
        Scheduled(OBJECT_CHORE, EVERY_SECONDS, objects.turn, LONGEST_SECONDS),
        Scheduled(
            "registry.manifest_scrub",
            scrubbing.scrub_every_seconds,
            partial(scrub_manifests, ctx, scrubbing),
            LONGEST_SECONDS,
        ),
    )


@dataclass
class ObjectScrub:
    """The scrub turns of one process."""

    ctx: ServiceContext
    store: BlobStore
    scrubbing: Scrubbing
    buckets: InitVar[BlobStore | None] = None
    _: KW_ONLY
    monotonic: Callable[[], float] = time.monotonic
    new_pace: Callable[[int], Pace] = Pace
    """Returns a pace for a number of bytes per second."""

    def __post_init__(self, buckets: BlobStore | None) -> None:
        self._reads: list[tuple[CheckedObjects[Any], BlobStore]] = [(BLOBS, self.store)]
        if buckets is not None:
            self._reads.append((PIECES, buckets))

    async def turn(self) -> int:
        """Read blobs and pieces that are due, one after another; return the number read.

        End early while a backup is under way, or if the database does not belong to the blobs.

        Raise `StoreUnavailable` if the first objects are all damaged, as on an unmounted disk.
        """
        try:
            await check_generation(self.ctx, self.store)
        except DatabaseWentBack as error:
            _log.error("no blob is verified: %s", error)
            return 0
        pace = self.new_pace(self.scrubbing.scrub_rate_bytes)
        ends_at = self.monotonic() + _TURN_SECONDS
        order, self._reads = self._reads, self._reads[1:] + self._reads[:1]
        return sum([await self._read(*each, ends_at, pace) for each in order])

    async def _read(
        self, checked: CheckedObjects[Any], store: BlobStore, ends_at: float, pace: Pace
    ) -> int:
        turn = _Turn(self.ctx)
        check: ObjectCheck[Any] = ObjectCheck(
            self.ctx.database, store, self.ctx.clock, checked, turn.note, turn.count, pace=pace
        )
        await check.run(self._due(checked.stored_rows, store, turn, ends_at), readers=1)
        if turn.is_suspicious:
            raise StoreUnavailable(
                f"the first {_SUSPICIOUS} {checked.what} of a turn of the scrub are all damaged:"
                f" is the disk of the {checked.what} mounted? The next turn goes on"
            )
        return check.object_count

    async def _due(
        self, rows: StoredRows, store: BlobStore, turn: _Turn, ends_at: float
    ) -> AsyncIterator[ObjectRow]:
        verified_before = self.ctx.clock() - self.scrubbing.every
        look_at = 0.0
        after = FIRST
        while page := await self.ctx.database.read(rows.due, verified_before, after, _PAGE):
            for row in page:
                now = self.monotonic()
                if now >= ends_at or turn.is_suspicious:
                    return
                if now >= look_at:
                    look_at = now + _LOOK_SECONDS
                    if isinstance((await store.delete([])).refusal, DeletionsHeld):
                        return
                yield row
            after = page[-1].verified_at, page[-1].id


class _Turn:
    """The counts of one scrub turn, and its findings."""

    def __init__(self, ctx: ServiceContext) -> None:
        self._ctx = ctx
        self._counted_objects = self._counted_bytes = 0
        self._damaged = 0
        self.is_suspicious = False

    def count(self, progress: CheckProgress) -> None:
        """Add the objects and bytes read since the last call to the counters."""
        objects, read = progress.done, progress.read_bytes
        self._ctx.count(SCRUBBED_OBJECTS, objects - self._counted_objects)
        self._ctx.count(SCRUBBED_BYTES, read - self._counted_bytes)
        self._counted_objects, self._counted_bytes = objects, read

    def note(self, found: FoundDamage | DamagedPiece) -> None:
        """Log and count a damaged blob or piece."""
        report_damage(self._ctx, found)
        self._damaged += 1
        if self._damaged == self._counted_objects + 1 == _SUSPICIOUS:
            self.is_suspicious = True


async def scrub_manifests(ctx: ServiceContext, scrubbing: Scrubbing) -> int:
    """Check the bytes of all manifests; log and count the damaged ones. Return their number."""
    check = ManifestCheck(ctx.database, Pace(scrubbing.scrub_rate_bytes))
    damaged = 0
    async for found in check.run(all_manifests(ctx.database)):
        damaged += 1
        for image in found.images[:_LOGGED]:
            with suppress(NotFound):  # `check` logs the damage, and counts each manifest once
                await ctx.manifest_damage.check(
                    found.manifest.body,
                    found.manifest.digest,
                    Name(image.handle, image.repository),
                    ctx.on_damage,
                )
            _log.error("image %s has a damaged manifest", image)
    ctx.count(SCRUBBED_BYTES, check.read_bytes)
    ctx.count(SCRUBBED_DAMAGED, damaged)
    return damaged


class ScrubStatus(NamedTuple):
    """Numbers of blobs and pieces verified in the last period; times in microseconds."""

    blobs: StoredTotals
    oldest_at: int | None
    """The least `verified_at` of all undamaged blobs; None if there are none."""
    turn_ended_at: int | None
    is_failed: bool
    """True if the last turn failed."""
    pieces: StoredTotals
    """Numbers for the pieces of buckets."""


async def scrub_status(database: Database, since: int) -> ScrubStatus:
    """Return the scrub's progress in the period that began at `since`. Reads all rows."""
    return await database.read(_status, since)


def _status(tx: Connection, since: int) -> ScrubStatus:
    turn = next((each for each in chores(tx) if each.name == OBJECT_CHORE), None)
    return ScrubStatus(
        BLOBS.stored_rows.totals(tx, since),
        oldest_at=scrub.oldest_verified_at(tx),
        turn_ended_at=turn.ended_at if turn else None,
        is_failed=turn is not None and turn.is_failed,
        pieces=PIECES.stored_rows.totals(tx, since),
    )


_WHOLE_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class ScrubScope:
    """Which blobs and manifests a scrub reads."""

    repository_ids: Sequence[str] = ()
    """The repositories whose blobs and manifests are read; empty for everything."""
    older_than: int = 0
    """Blobs that were verified less than this many microseconds ago are skipped."""


@dataclass
class ScrubReport:
    """The result of a scrub."""

    object_count: int = 0
    manifest_count: int = 0
    piece_count: int = 0
    read_bytes: int = 0
    blobs: list[FoundDamage] = field(default_factory=list)
    pieces: list[DamagedPiece] = field(default_factory=list)
    manifests: list[FoundManifest] = field(default_factory=list)


async def scrub_all(
    database: Database,
    store: BlobReader,
    clock: Clock,
    scope: ScrubScope,
    pace: Pace,
    on_progress: Callable[[CheckProgress], None],
    buckets: BlobReader | None = None,
) -> ScrubReport:
    """Read the blobs and manifests in a scope; return the result.

    If the scope is everything, also read the pieces in the store `buckets`.

    Damaged blobs are marked, and the marks of intact ones are removed. To continue an interrupted
    scrub, run another one that skips recently verified blobs.
    """
    report = ScrubReport()
    is_whole = not scope.repository_ids
    total = (await database.read(audit.totals))[0] if is_whole and not scope.older_than else None
    # Blobs that are pushed from now on need no check: the push verifies them.
    rows = _objects(database, scope, clock() - scope.older_than)

    objects = ObjectCheck(
        database, store, clock, BLOBS, report.blobs.append, on_progress, pace=pace, total=total
    )
    await objects.run(rows)
    report.object_count, report.read_bytes = objects.object_count, objects.read_bytes

    def tell_manifests() -> None:
        report.manifest_count = manifests.manifest_count
        report.read_bytes = objects.read_bytes + manifests.read_bytes
        on_progress(CheckProgress("manifests", report.manifest_count, None, report.read_bytes))

    manifests = ManifestCheck(database, pace, tell_manifests)
    if is_whole:
        report.manifests += [each async for each in manifests.run(all_manifests(database))]
    for repository_id in scope.repository_ids:
        pages = manifests_of(database, repository_id)
        report.manifests += [each async for each in manifests.run(pages)]
    if buckets is None or not is_whole:
        return report
    found, read = report.pieces.append, report.read_bytes
    pieces = ObjectCheck(
        database, buckets, clock, PIECES, found, on_progress, pace=pace, read_before=read
    )
    await pieces.run(PIECES.stored_rows.each(database, clock() - scope.older_than))
    report.piece_count, report.read_bytes = pieces.object_count, read + pieces.read_bytes
    return report


async def _objects(
    database: Database, scope: ScrubScope, verified_before: int
) -> AsyncIterator[ObjectRow]:
    """Yield the objects in a scope that were last verified before a time, each once.

    Verifying objects while the pages are read does not change their order.
    """
    if not scope.repository_ids:
        async for row in BLOBS.stored_rows.each(database, verified_before):
            yield row
    seen: set[str] = set()
    for repository_id in scope.repository_ids:
        after = ""
        while page := await database.read(
            scrub.objects_of_repository, repository_id, verified_before, after, _WHOLE_PAGE
        ):
            for row in page:
                if row.id not in seen:
                    seen.add(row.id)
                    yield row
            after = page[-1].digest

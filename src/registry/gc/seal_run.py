"""The background run that seals plain objects, at a limited rate.

It works in turns, as the scrub does. Sealed objects leave the list of plain objects, so any process
continues after another died; only the object that was being sealed is started again.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Final, NamedTuple

from cloudcore.db.base import Connection, Database
from cloudcore.jobs.metrics import chores
from cloudcore.jobs.schedule import Scheduled
from cloudcore.objects.stored_rows import ObjectRow
from registry.blobstore.base import DeletionsHeld
from registry.blobstore.store import BlobStore
from registry.counters import SEALED_BYTES, SEALED_OBJECTS
from registry.errors import StoreUnavailable
from registry.gc.database_rollback import DatabaseWentBack, check_generation
from registry.gc.object_check import FoundDamage, Pace, report_damage, work_through
from registry.gc.object_sealing import Outcome, Sealer
from registry.metadata.blobs.objects import BLOB_ROWS
from registry.metadata.collector import plain_objects
from registry.metadata.collector.plain_objects import PlainTotals, Position
from registry.services.context import ServiceContext

CHORE: Final = "registry.seal"
EVERY_SECONDS: Final = 300
"""Seconds between the starts of turns."""
LONGEST_SECONDS: Final = 7 * 24 * 3600
"""Time limit of a turn, enough to seal the largest blob."""
_TURN_SECONDS: Final = 600
"""Time after which a turn begins no further blob; then another process may continue."""
_REST_SECONDS: Final = 3600
"""Pause after all remaining objects were tried and none could be sealed."""
_LOOK_SECONDS: Final = 10.0
"""Time between two checks whether a backup is under way; on PostgreSQL each takes a connection."""

_log = logging.getLogger(__name__)
_PAGE: Final = 100
_SUSPICIOUS: Final = 20
"""If this many blobs are damaged before one is sealed, the disk is probably not mounted."""


def seal_chores(
    ctx: ServiceContext, store: BlobStore, bytes_per_second: int
) -> Sequence[Scheduled]:
    """Return the sealing chore; empty if sealing is turned off, or new blobs are stored plain."""
    if not bytes_per_second or not ctx.seals:
        return ()
    turn = SealTurns(ctx, store, bytes_per_second).turn
    return (Scheduled(CHORE, EVERY_SECONDS, turn, LONGEST_SECONDS),)


@dataclass
class SealTurns:
    """The sealing turns of one process."""

    ctx: ServiceContext
    store: BlobStore
    bytes_per_second: int
    _: KW_ONLY
    monotonic: Callable[[], float] = time.monotonic
    new_pace: Callable[[int], Pace] = Pace
    """Returns a pace for a number of bytes per second."""
    _after: Position = field(default=plain_objects.FIRST, init=False)
    _rests_until: float = field(default=0.0, init=False)

    async def turn(self) -> int:
        """Seal plain objects, one after another; return the number sealed.

        End early while a backup is under way, or if the database does not belong to the blobs.

        Raise `StoreUnavailable` if there is no room for a copy, the store failed, or the first
        objects are all damaged.
        """
        ctx = self.ctx
        assert ctx.data_keys is not None
        if self.monotonic() < self._rests_until:
            return 0
        try:
            await check_generation(ctx, self.store)
        except DatabaseWentBack as error:
            _log.error("no blob is sealed: %s", error)
            return 0
        report = SealReport()
        pace = self.new_pace(self.bytes_per_second)
        sealer = Sealer(ctx, ctx.data_keys, self.store, pace, partial(report_damage, ctx))
        counted = [0, 0]

        def count() -> None:
            sealed, sealed_bytes = report.outcomes[Outcome.SEALED], report.sealed_bytes
            ctx.count(SEALED_OBJECTS, sealed - counted[0])
            ctx.count(SEALED_BYTES, sealed_bytes - counted[1])
            counted[:] = sealed, sealed_bytes

        await seal_objects(sealer, self._due(), report, count)
        self._log_end(report)
        return report.outcomes[Outcome.SEALED]

    async def _due(self) -> AsyncIterator[ObjectRow]:
        """Yield plain objects after the last one of the previous turn.

        After a turn that reaches the end, the next turn starts from the beginning.
        """
        ends_at = self.monotonic() + _TURN_SECONDS
        look_at = 0.0
        async for row in plain_rows(self.ctx.database, self._after):
            now = self.monotonic()
            if now >= ends_at:
                return
            if now >= look_at:
                look_at = now + _LOOK_SECONDS
                if isinstance((await self.store.delete([])).refusal, DeletionsHeld):
                    return
            self._after = row.account_id, row.id
            yield row
        self._after = plain_objects.FIRST

    def _log_end(self, report: SealReport) -> None:
        stayed = {each.value: count for each, count in report.outcomes.items() if count}
        if not stayed:
            return
        sealed = stayed.pop(Outcome.SEALED.value, 0)
        if not sealed and self._after == plain_objects.FIRST:
            self._rests_until = self.monotonic() + _REST_SECONDS
        words = ", ".join(f"{count} {reason}" for reason, count in sorted(stayed.items()))
        _log.info(
            "sealed %d blobs (%d bytes)%s",
            sealed,
            report.sealed_bytes,
            f"; left plain: {words}" if words else "",
        )


class SealStatus(NamedTuple):
    """Numbers and bytes of plain and of all blobs, and the last turn; times in microseconds."""

    plain: PlainTotals
    object_count: int
    """Number of all objects, plain or sealed."""
    stored_bytes: int
    turn_ended_at: int | None
    is_failed: bool
    """True if the last turn failed."""


async def seal_status(database: Database) -> SealStatus:
    """Return the progress of sealing. Reads every blob's row."""
    return await database.read(_status)


def _status(tx: Connection) -> SealStatus:
    counted = BLOB_ROWS.totals(tx, 0)
    turn = next((each for each in chores(tx) if each.name == CHORE), None)
    return SealStatus(
        plain_objects.count_plain(tx),
        counted.objects,
        counted.stored_bytes,
        turn_ended_at=turn.ended_at if turn else None,
        is_failed=turn is not None and turn.is_failed,
    )


@dataclass
class SealReport:
    """Numbers of objects that a run has sealed or skipped, by outcome."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    sealed_bytes: int = 0
    """Bytes of the objects that were sealed, counted before sealing."""
    damaged: list[FoundDamage] = field(default_factory=list)

    @property
    def is_suspicious(self) -> bool:
        """Return True if the store seems to be missing: many objects damaged and none sealed."""
        return self.outcomes[Outcome.DAMAGED] >= _SUSPICIOUS and not self.outcomes[Outcome.SEALED]


async def seal_objects(
    sealer: Sealer,
    rows: AsyncIterator[ObjectRow],
    report: SealReport,
    on_progress: Callable[[], None],
    workers: int = 1,
) -> None:
    """Seal objects, `workers` at once; call `on_progress` after each.

    Raises:
        StoreUnavailable: the store is full or failed, or the first objects are all damaged.
        Unavailable: the database failed, or the provider of a KMS key is unavailable.
        ReadingStopped: `Pace.stop` was called.

    """

    async def seal(row: ObjectRow) -> None:
        outcome = await sealer.seal(row)
        report.outcomes[outcome] += 1
        if outcome is Outcome.SEALED:
            report.sealed_bytes += row.stored_size
        on_progress()
        if report.is_suspicious:
            raise StoreUnavailable(
                f"the first {_SUSPICIOUS} blobs are all damaged: is the disk of the blobs mounted?"
            )

    await work_through(rows, seal, workers)


async def plain_rows(database: Database, after: Position) -> AsyncIterator[ObjectRow]:
    """Yield the plain objects after a position; sealing them meanwhile does no harm."""
    while page := await database.read(plain_objects.next_plain, after, _PAGE):
        for row in page:
            yield row
        after = page[-1].account_id, page[-1].id

"""Seal many plain objects, by several workers: the run in the background and ``entrepot seal``."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

from cloudcore.db.base import Database
from registry.errors import StoreUnavailable
from registry.gc.object_check import FoundDamage
from registry.gc.sealing.object_sealing import Outcome, Sealer
from registry.metadata.collector import plain_objects
from registry.metadata.collector.audit import ObjectRow
from registry.metadata.collector.plain_objects import Position

_PAGE: Final = 100
_SUSPICIOUS: Final = 20
"""Damaged blobs at the begin, without a whole one, that look like an unmounted disk."""


@dataclass
class SealReport:
    """What became of the objects that were looked at."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    sealed_bytes: int = 0
    """Bytes of the sealed ones, before they were sealed."""
    damaged: list[FoundDamage] = field(default_factory=list)

    @property
    def is_suspicious(self) -> bool:
        """Return True if it looks as if the disk of the blobs was not mounted."""
        return self.outcomes[Outcome.DAMAGED] >= _SUSPICIOUS and not self.outcomes[Outcome.SEALED]


async def seal_objects(
    sealer: Sealer,
    rows: AsyncIterator[ObjectRow],
    report: SealReport,
    tell: Callable[[], None],
    workers: int = 1,
) -> None:
    """Seal objects, `workers` at once; call `tell` after each.

    Raises:
        StoreUnavailable: the store is full or failed; or the first objects are all damaged.
        Unavailable: the database failed, or the provider of a key is not there.
        ReadingStopped: the pace was stopped.

    """
    turn = asyncio.Lock()

    async def work() -> None:
        while True:
            async with turn:
                row = await anext(rows, None)
            if row is None:
                return
            outcome = await sealer.seal(row)
            report.outcomes[outcome] += 1
            if outcome is Outcome.SEALED:
                report.sealed_bytes += row.stored_size
            tell()
            if report.is_suspicious:
                raise StoreUnavailable(
                    f"the first {_SUSPICIOUS} blobs are all damaged: is the disk of the blobs"
                    " mounted?"
                )

    tasks = [asyncio.create_task(work()) for _ in range(workers)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def plain_rows(database: Database, after: Position) -> AsyncIterator[ObjectRow]:
    """Yield the plain objects behind `after`; those that are sealed meanwhile change no order."""
    while page := await database.read(plain_objects.next_plain, after, _PAGE):
        for row in page:
            yield row
        after = page[-1].account_id, page[-1].id

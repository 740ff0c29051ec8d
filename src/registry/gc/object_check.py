"""Check many stored objects, by several readers: fsck and the scrub do it with this code.

Blobs and the pieces of buckets lie in stores alike and are checked alike; `Marks` is what differs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from cloudcore.clock import Clock
from cloudcore.db.base import Connection, Database
from registry.blobstore.base import BlobReader
from registry.gc.pace import Pace
from registry.gc.stored_objects import ObjectState, confirm, look
from registry.metadata.blobs import damage
from registry.metadata.blobs.damage import DamagedImage
from registry.metadata.collector import audit
from registry.metadata.collector.audit import ObjectRow

READERS: Final = 4
"""Objects that are read at once: a disk that is not a rotating one then has enough to do."""
_BATCH: Final = 500
_BATCH_BYTES: Final = 1 << 30
"""Objects, and bytes of them, that are read again if the process dies."""
_IMAGES: Final = 500


class FoundDamage(NamedTuple):
    """A damaged blob, and the images that need it."""

    digest: str
    problem: str
    is_new: bool
    """False if it was known before."""
    images: Sequence[DamagedImage]
    """The first 500."""


F = TypeVar("F")
F_co = TypeVar("F_co", covariant=True)


class Marks(Protocol[F_co]):
    """Where the outcome of checks is recorded; each a part of a transaction."""

    def confirm(self, tx: Connection, rows: Sequence[ObjectRow], now: int, /) -> None:
        """Note when objects that are whole were verified, and remove their marks."""
        ...

    def is_unchanged(self, tx: Connection, row: ObjectRow, /) -> bool:
        """Return False if the object is gone, was verified since, or has other bytes now."""
        ...

    def mark(self, tx: Connection, row: ObjectRow, damage: str, now: int, /) -> bool:
        """Mark an object as damaged; return False if it already is, or is not unchanged."""
        ...

    def describe(self, tx: Connection, row: ObjectRow, problem: str, /, *, is_new: bool) -> F_co:
        """Return what is told of a damaged object."""
        ...


class MarksOfBlobs(Marks[FoundDamage]):
    """Those of blobs."""

    def confirm(self, tx: Connection, rows: Sequence[ObjectRow], now: int) -> None:
        """Note when blobs were verified (`Marks.confirm`)."""
        confirm(tx, rows, now)

    def is_unchanged(self, tx: Connection, row: ObjectRow) -> bool:
        """Look whether a blob was changed (`Marks.is_unchanged`)."""
        return audit.is_unchanged(tx, row)

    def mark(self, tx: Connection, row: ObjectRow, found: str, now: int) -> bool:
        """Mark a blob as damaged (`Marks.mark`)."""
        return damage.mark(tx, row.account_id, row.stored_id, row.verified_at, found, now)

    def describe(
        self, tx: Connection, row: ObjectRow, problem: str, *, is_new: bool
    ) -> FoundDamage:
        """Tell which images need a damaged blob (`Marks.describe`)."""
        images = damage.images_of(tx, row.account_id, [row.id], _IMAGES)
        return FoundDamage(row.digest, problem, is_new, images)


BLOBS: Final = MarksOfBlobs()


class ObjectCheck(Generic[F]):
    """A check of objects: it marks the damaged ones, and sets `verified_at` of the whole ones."""

    def __init__(
        self,
        database: Database,
        store: BlobReader,
        clock: Clock,
        marks: Marks[F],
        found: Callable[[F], None],
        tell: Callable[[], None] = lambda: None,
        *,
        pace: Pace | None = None,
        reads: bool = True,
    ) -> None:
        """Call `found` for each damaged object, and `tell` after each object.

        Without `reads`, check only presence and size of the objects' bytes.
        """
        self._database = database
        self._store = store
        self._clock = clock
        self._marks = marks
        self._found = found
        self._tell = tell
        self._pace = pace or Pace()
        self._reads = reads
        self._verified: list[ObjectRow] = []
        self._verified_bytes = 0
        self.object_count = 0
        self.read_bytes = 0

    async def run(self, rows: AsyncIterator[ObjectRow], readers: int = READERS) -> None:
        """Check objects, `readers` at once; if that is stopped, record what was checked.

        Raises:
            ReadingStopped: the pace was stopped.

        """
        turn = asyncio.Lock()
        if readers == 1:
            try:
                await self._read(rows, turn)
            finally:
                await self._confirm()
            return
        tasks = [asyncio.create_task(self._read(rows, turn)) for _ in range(readers)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._confirm()

    async def _read(self, rows: AsyncIterator[ObjectRow], turn: asyncio.Lock) -> None:
        while True:
            async with turn:
                row = await anext(rows, None)
            if row is None:
                return
            await self.check(row)

    async def check(self, row: ObjectRow) -> None:
        """Check one object."""
        state = await look(self._store, row, self._pace, reads=self._reads)
        self.read_bytes += state.read_bytes
        if state.problem is not None:
            await self._report(row, state, state.problem)
        elif state.is_verified:
            self._verified.append(row)
            self._verified_bytes += state.read_bytes
        if len(self._verified) >= _BATCH or self._verified_bytes >= _BATCH_BYTES:
            await self._confirm()
        self.object_count += 1
        self._tell()

    async def _confirm(self) -> None:
        verified, self._verified, self._verified_bytes = self._verified, [], 0
        if verified:
            await self._database.write_relaxed(self._marks.confirm, verified, self._clock())

    async def _report(self, row: ObjectRow, state: ObjectState, problem: str) -> None:
        marks = self._marks
        if not await self._database.read(marks.is_unchanged, row):
            return  # it was swept, verified or written anew during the check
        is_new = state.damage is not None and await self._database.write(
            marks.mark, row, state.damage, self._clock()
        )
        self._found(
            await self._database.read(lambda tx: marks.describe(tx, row, problem, is_new=is_new))
        )

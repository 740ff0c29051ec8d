"""Check many stored objects, blobs and pieces of buckets, by several readers at a limited rate.

The stored bytes are compared with their BLAKE3 checksum or, if plain, with the object's digest.
This needs no data key, even for sealed bytes.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import KW_ONLY, dataclass, field
from hashlib import sha256
from typing import Final, Generic, NamedTuple, TypeVar, TypeVarTuple, Unpack

from blake3 import blake3

from cloudcore.clock import Clock
from cloudcore.db.base import Connection, Database
from cloudcore.objects import damage
from cloudcore.objects.stored_rows import ObjectRow, StoredRows
from cloudcore.storage.pieces.rows import PIECE_ROWS, PieceOwner, find_piece_owner
from cloudcore.threads import Threads
from registry.blobstore.base import ObjectDamaged, ObjectUnknown
from registry.blobstore.store import BlobReader
from registry.counters import SCRUBBED_DAMAGED
from registry.errors import StoreUnavailable
from registry.metadata.blobs.damage import DamagedImage, images_of
from registry.metadata.blobs.objects import BLOB_ROWS
from registry.services.context import ServiceContext

_IMAGES: Final = 500
_LOGGED: Final = 20
"""Images of a damaged blob that are named in the log."""
_log = logging.getLogger(__name__)


class FoundDamage(NamedTuple):
    """A damaged blob, and the images that need it."""

    digest: str
    problem: str
    is_new: bool
    """False if the damage was already marked."""
    images: Sequence[DamagedImage]
    """The first 500."""

    def log(self) -> None:
        """Log the damage and the images that need the blob."""
        _log.error("blob %s is damaged (%s): clients get 404 until it is pushed again", *self[:2])
        for image in self.images[:_LOGGED]:
            _log.error("image %s needs the damaged blob %s", image, self.digest)
        if len(self.images) > _LOGGED:
            _log.error(
                "%d images need the damaged blob %s; 'entrepot scrub' names them",
                len(self.images),
                self.digest,
            )


class DamagedPiece(NamedTuple):
    """A damaged piece, and the object or upload to which it belongs."""

    piece_id: str
    problem: str
    is_new: bool
    """False if the damage was already marked."""
    hit: PieceOwner | None
    """None if the object or upload was deleted or overwritten meanwhile."""

    def __str__(self) -> str:
        """Return the piece and the object or upload that needs it, on one line."""
        hit = "" if self.hit is None else f" of {str(self.hit)!r}"
        return f"piece {self.piece_id}{hit}"

    def log(self) -> None:
        """Log the damage and the object that needs the piece."""
        _log.error("%s is damaged (%s): reading fails until it is stored again", self, self.problem)


F = TypeVar("F")


@dataclass(frozen=True)
class CheckedObjects(Generic[F]):
    """A kind of objects to check: blobs, or pieces of buckets."""

    what: str
    stored_rows: StoredRows
    describe: Callable[[Connection, ObjectRow, str, bool], F]
    """Returns the finding for a damaged object, from its problem and whether the damage is new."""


def _blob(tx: Connection, row: ObjectRow, problem: str, is_new: bool) -> FoundDamage:  # noqa: FBT001
    images = images_of(tx, row.account_id, [row.id], _IMAGES)
    return FoundDamage(row.digest, problem, is_new, images)


def _piece(tx: Connection, row: ObjectRow, problem: str, is_new: bool) -> DamagedPiece:  # noqa: FBT001
    return DamagedPiece(row.id, problem, is_new, find_piece_owner(tx, row.id))


BLOBS: Final = CheckedObjects("blobs", BLOB_ROWS, _blob)
PIECES: Final = CheckedObjects("pieces of buckets", PIECE_ROWS, _piece)


def report_damage(ctx: ServiceContext, found: FoundDamage | DamagedPiece) -> None:
    """Log damage; if it is new, also count it."""
    if found.is_new:
        ctx.on_damage()
        ctx.count(SCRUBBED_DAMAGED, 1)
    found.log()


T = TypeVar("T")
Ts = TypeVarTuple("Ts")

NO_LIMIT: Final = 0
VERIFYING: Final = Threads("verifying")
"""Threads that read whole objects, which takes long, and may wait for a `Pace`."""


class ReadingStopped(Exception):
    """Reading was stopped by `Pace.stop`."""


class Pace:
    """A limit in bytes per second, or `NO_LIMIT`, on how fast several threads together read.

    Threads that read too fast wait in `spend`, each for its own bytes. The limit holds over any
    period: after a pause, reading is not faster to make up for the lost time.
    """

    def __init__(
        self,
        bytes_per_second: int = NO_LIMIT,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._monotonic = monotonic
        self._wait = wait
        self._lock = threading.Lock()
        self._free_at = 0.0
        self._stopped = threading.Event()

    def spend(self, count: int) -> None:
        """Count bytes that were read, and wait as long as the rate requires. Blocks.

        Raise `ReadingStopped` if `stop` was called before or during the wait.
        """
        seconds = 0.0
        if self._bytes_per_second:
            with self._lock:
                now = self._monotonic()
                self._free_at = max(now, self._free_at) + count / self._bytes_per_second
                seconds = self._free_at - now
        if self._stopped.is_set() or (seconds > 0 and self._wait(self._stopped, seconds)):
            raise ReadingStopped

    def stop(self) -> None:
        """Stop all threads that read at this pace, now and later."""
        self._stopped.set()

    async def in_thread(self, call: Callable[[Unpack[Ts]], T], *arguments: *Ts) -> T:
        """Call a function that reads at this pace, in a thread.

        If this call is cancelled, stop all readers at this pace, and wait for the thread, which may
        use files that the caller will close.
        """
        reading = asyncio.ensure_future(VERIFYING(call, *arguments))
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            self.stop()
            with suppress(ReadingStopped):
                await reading
            raise


READERS: Final = 4
"""Objects that are read at once, which is enough to keep a non-rotating disk busy."""
_BATCH: Final = 500
_BATCH_BYTES: Final = 1 << 30
"""`_BATCH` objects, or this many bytes of objects, may be read again if the process dies."""


class CheckProgress(NamedTuple):
    """Progress of a check: items done and in total in a stage, and bytes read."""

    stage: str
    done: int
    total: int | None
    """None if unknown."""
    read_bytes: int = 0


async def work_through(
    rows: AsyncIterator[ObjectRow], work: Callable[[ObjectRow], Awaitable[None]], at_once: int
) -> None:
    """Call `work` for all rows, `at_once` at a time; if one call fails, cancel the others."""
    turn = asyncio.Lock()

    async def take() -> None:
        while True:
            async with turn:
                row = await anext(rows, None)
            if row is None:
                return
            await work(row)

    if at_once == 1:
        await take()
        return
    tasks = [asyncio.create_task(take()) for _ in range(at_once)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass
class ObjectCheck(Generic[F]):
    """A check of objects: it marks damaged objects, and sets `verified_at` of intact ones."""

    database: Database
    store: BlobReader
    clock: Clock
    checked: CheckedObjects[F]
    found: Callable[[F], None]
    """Called for each damaged object."""
    on_progress: Callable[[CheckProgress], None] = lambda _: None
    """Called after each object."""
    _: KW_ONLY
    pace: Pace = field(default_factory=Pace)
    reads: bool = True
    """False to check only presence and size of the objects' bytes."""
    total: int | None = None
    """Total number of objects, for `on_progress`; None if unknown."""
    read_before: int = 0
    """Bytes that were read before this check; added to those in `on_progress`."""
    object_count: int = field(default=0, init=False)
    read_bytes: int = field(default=0, init=False)
    _verified: list[ObjectRow] = field(default_factory=list, init=False)
    _verified_bytes: int = field(default=0, init=False)

    async def run(self, rows: AsyncIterator[ObjectRow], readers: int = READERS) -> None:
        """Check objects, `readers` at once; if stopped early, record those already checked.

        Raise `ReadingStopped` if `Pace.stop` was called.
        """
        try:
            await work_through(rows, self.check, readers)
        finally:
            await self._confirm()

    async def check(self, row: ObjectRow) -> None:
        """Check one object."""
        state = await inspect(self.store, row, self.pace, reads=self.reads)
        self.read_bytes += state.read_bytes
        if state.problem is not None:
            await self._report(row, state, state.problem)
        elif state.is_verified:
            self._verified.append(row)
            self._verified_bytes += state.read_bytes
        if len(self._verified) >= _BATCH or self._verified_bytes >= _BATCH_BYTES:
            await self._confirm()
        self.object_count += 1
        read_bytes = self.read_before + self.read_bytes
        progress = self.checked.what, self.object_count, self.total, read_bytes
        self.on_progress(CheckProgress(*progress))

    async def _confirm(self) -> None:
        verified, self._verified, self._verified_bytes = self._verified, [], 0
        if verified:
            await self.database.write_relaxed(
                self.checked.stored_rows.confirm_all, verified, self.clock()
            )

    async def _report(self, row: ObjectRow, state: ObjectState, problem: str) -> None:
        rows, describe = self.checked.stored_rows, self.checked.describe
        if not await self.database.read(rows.is_unchanged, row):
            return  # it was swept, verified or written anew during the check
        is_new = state.damage is not None and await self.database.write(
            rows.mark, row.account_id, row.stored_id, row.verified_at, state.damage, self.clock()
        )
        self.found(await self.database.read(describe, row, problem, is_new))


class ObjectState(NamedTuple):
    """The result of checking an object's stored bytes."""

    problem: str | None = None
    """The problem in words, or None if there is none."""
    damage: str | None = None
    """The damage to mark; None if the bytes may be intact or are already marked."""
    read_bytes: int = 0
    is_verified: bool = False
    """True if all bytes were read and have the right hash."""


async def inspect(store: BlobReader, row: ObjectRow, pace: Pace, *, reads: bool) -> ObjectState:
    """Check an object's stored bytes: presence and size, and with `reads` also their hash.

    Raise `ReadingStopped` if `Pace.stop` was called.
    """
    if row.is_inline:
        return await _inspect_body(row, pace, reads=reads)
    try:
        stored = await store.open_stored(row.stored_id, row.stored_size)
    except ObjectUnknown:
        return ObjectState("its bytes are gone", damage.ABSENT)
    except ObjectDamaged as error:
        return ObjectState(str(error), damage.SIZE)
    except StoreUnavailable as error:
        return _unreadable(error)
    async with aclosing(stored):
        if not reads:
            return _marked_before(row)
        return await pace.in_thread(_hash, stored.chunks(), row, pace)


async def _inspect_body(row: ObjectRow, pace: Pace, *, reads: bool) -> ObjectState:
    if row.body is None:
        return ObjectState("its bytes are gone", damage.ABSENT)
    if len(row.body) != row.stored_size:
        problem = f"it has {len(row.body)} bytes instead of {row.stored_size}"
        return ObjectState(problem, damage.SIZE)
    if not reads:
        return _marked_before(row)
    return await pace.in_thread(_hash, [memoryview(row.body)], row, pace)


def _hash(chunks: Iterable[memoryview], row: ObjectRow, pace: Pace) -> ObjectState:
    """Read an object and compare its hash with the expected one. Blocks."""
    size = 0
    hasher = sha256() if row.checksum is None else blake3()
    try:
        for view in chunks:
            hasher.update(view)
            size += len(view)
            pace.spend(len(view))
    except StoreUnavailable as error:
        return _unreadable(error)._replace(read_bytes=size)
    actual = hasher.hexdigest()
    if row.checksum is None and f"sha256:{actual}" != row.digest:
        return ObjectState(f"its bytes hash to sha256:{actual}", damage.DIGEST, size)
    if row.checksum not in (None, actual):
        problem = f"its stored bytes hash to blake3:{actual} instead of blake3:{row.checksum}"
        return ObjectState(problem, damage.DIGEST, size)
    return ObjectState(read_bytes=size, is_verified=True)


def _marked_before(row: ObjectRow) -> ObjectState:
    """Return the state of unread bytes: a problem if only reading can remove their damage mark."""
    if row.damage in (damage.DIGEST, damage.UNREADABLE):
        return ObjectState("it was found damaged before; without --quick its bytes are read again")
    return ObjectState()


def _unreadable(error: StoreUnavailable) -> ObjectState:
    """Return the state of unreadable bytes; EIO is damage, other errors are not."""
    refusal = error.__cause__
    is_damage = isinstance(refusal, OSError) and refusal.errno == errno.EIO
    problem = f"its bytes cannot be read: {error.message}"
    return ObjectState(problem, damage.UNREADABLE if is_damage else None)

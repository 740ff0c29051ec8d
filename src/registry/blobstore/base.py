"""The seams of the blob store, cut by who needs them: readers, writers, and the one sweeper.

A store knows objects by id. Which account, repository or digest an object serves is not its
business, and no text of a user ever becomes part of a path.

Life of bytes: an upload *stages* them (appended at an offset, hashed while they arrive) and
`Staged.commit` turns them into an object, verified and flushed. There is no other door.

A coroutine here blocks nobody: it waits for a disk or a network in a thread, or finds without
waiting what it needs. Plain methods that say "Blocks" are for bulk threads, which move the bytes.

"Gone" and "broken" differ: what is not there raises `ObjectUnknown`; everything the disk or the
network refuses (full, I/O error) raises `registry.errors.StoreUnavailable`, after which reading
goes on. After a failed flush, what this hold wrote is discarded: it may be lost even if a second
flush would succeed, so there is none. What was acknowledged before the hold stays.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from registry.errors import StoreUnavailable
from registry.oci.digest import Digest

PLAIN: Final = "plain"
"""Encoding of bytes that are stored as they came."""


class ObjectUnknown(Exception):
    """The store holds no object, or no staged bytes, under this id."""


class ObjectDamaged(Exception):
    """The stored bytes are fewer or more than the object's size."""


class StageBusy(Exception):
    """Another writer holds these staged bytes, in this process or another."""


class StagedDropped(Exception):
    """Staged bytes that were being read were discarded, or cut off before what was read."""


class KeyNotTaken(Exception):
    """The store keeps bytes plain, and was given a data key to seal or open them with."""


@dataclass(frozen=True, slots=True)
class DataKey:
    """The key that seals the bytes of one object, and how it is stored."""

    key_id: str
    """The KMS key that wraps it."""
    wrapped: bytes
    """The data key, encrypted under that key: what the metadata keeps."""
    plaintext: bytes = field(repr=False)


class FileRegion(NamedTuple):
    """A run of bytes in an open file, ready for ``sendfile``."""

    descriptor: int
    offset: int
    count: int  # type: ignore[assignment] # hides tuple.count, as sendfile names it


class OpenObject(Protocol):
    """An object open for reading, or staged bytes that may still grow.

    An object stays readable after its deletion. Ranges are of the bytes as they were pushed,
    whatever their encoding: ``[start, stop)``, where `stop` None is the end; a range outside
    the object raises ValueError.
    """

    @property
    def length(self) -> int | None:
        """Return the number of bytes, or None while it grows."""
        ...

    def file_region(self, start: int = 0, stop: int | None = None) -> FileRegion | None:
        """Return where a range lies in a file, or None if its bytes must be asked for.

        None of what is sealed, grows, or is not in a file. Valid until `aclose`.
        """
        ...

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        """Yield a range in order; each view is valid until the next. Blocks.

        Raises:
            StoreUnavailable: reading failed, or the object has become shorter.
            ValueError: the object grows.

        """
        ...

    def stream(self, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """Yield a range in order, in parts of at most 256 KiB.

        Of growing bytes, the last part comes when they are written; with `stop` None, the end when
        they are committed.

        Raises:
            StagedDropped: they were discarded, or others took their place.
            StoreUnavailable: as `chunks`.

        """
        ...

    async def aclose(self) -> None:
        """Release the object; calling it again does nothing."""
        ...


class BlobReader(Protocol):
    """Gives bytes out: the data plane, the scrubber."""

    async def open(
        self, object_id: str, size: int | None = None, data_key: DataKey | None = None
    ) -> OpenObject:
        """Open an object of `size` bytes, or of any size; a sealed one with its key.

        Raises:
            ObjectUnknown: there is no such object.
            ObjectDamaged: it has another size.
            StoreUnavailable: the store failed.
            KeyNotTaken: there is a key, and the store keeps bytes plain.

        """
        ...

    async def open_staged(self, upload_id: str, data_key: DataKey | None = None) -> OpenObject:
        """Open staged bytes, to read them while they grow; if committed already, the object.

        They need not be flushed yet, and are verified only by their commit. Another process's
        writes are seen within moments.

        Raises:
            ObjectUnknown, StoreUnavailable, KeyNotTaken: as `open`.

        """
        ...

    async def check(self, object_id: str, stored_size: int) -> None:
        """Check that an object is there with `stored_size` bytes, without opening it.

        Raises:
            ObjectUnknown, ObjectDamaged, StoreUnavailable: as `open`.

        """
        ...

    def check_cached(self, object_id: str, stored_size: int) -> bool:
        """Return True if an object is known at once to be there with `stored_size` bytes.

        Never waits and never raises. False says nothing of the object: then `check` it.
        """
        ...


class Stored(NamedTuple):
    """An object that has just come to exist."""

    object_id: str
    digest: Digest
    """sha256 of the bytes: the identity under which it is stored."""
    alias: Digest | None
    """The verified digest it was committed under, when that is not sha256."""
    size: int
    stored_size: int
    encoding: str
    """How the bytes are stored: `PLAIN`, or sealed under a data key."""


class Staged(Protocol):
    """Bytes of one upload on their way in, held by exactly one writer."""

    @property
    def offset(self) -> int:
        """Return how many bytes are staged."""
        ...

    async def rewind(
        self,
        offset: int,
        digests: Mapping[str, str] | None = None,
        algorithm: str | None = None,
        *,
        data_key: DataKey | None,
    ) -> None:
        """Go to the acknowledged `offset` of resumed bytes; longer ones are cut off there.

        Newly staged bytes, of which none are written, may be rewound (to 0) like resumed ones.

        `digests` is what `flush` returned at this offset; `algorithm` and `data_key` are what
        `BlobWriter.stage` was given.

        Raises:
            ObjectUnknown: fewer bytes than `offset` are there.
            StoreUnavailable: the store failed.
            KeyNotTaken: there is a key, and the store keeps bytes plain.

        """
        ...

    def write(self, view: memoryview, /) -> None:
        """Append bytes and hash them. Blocks.

        Raises:
            StoreUnavailable: the store is full or failed; what `offset` counts is still good.

        """
        ...

    def flush(self) -> Mapping[str, str]:
        """Make the staged bytes durable (file, then folder). Blocks.

        After a failure, this hold can only be closed. The next one goes on at the offset that this
        one was rewound to; at 0, with new bytes.

        Returns the hex digest of everything staged for each algorithm whose hash saw every byte,
        so that a later `stage` on any worker need not read them again.
        """
        ...

    def commit(self, expected: Digest) -> Stored:
        """Verify the bytes against `expected`, flush them and make them an object. Blocks.

        The only way an object comes to exist. sha256 is always computed; when another algorithm
        was asked for and not hashed on the way, the staged bytes are read once more. The hold
        lasts until `aclose`, so that nobody takes the object back before its row is written.

        Raises:
            DigestMismatch: the bytes hash to something else; they are still staged.
            StoreUnavailable: flushing failed, as in `flush`; or the bytes cannot be read again,
                and are discarded.

        """
        ...

    async def discard(self) -> None:
        """Delete the staged bytes; afterwards the id is free. An object is left alone."""
        ...

    async def aclose(self) -> None:
        """Let go of the bytes and keep them, so that a later request can `resume` them.

        Call it in every case and last, after the row is written; again does nothing.
        """
        ...


class BlobWriter(Protocol):
    """Takes bytes in: uploads, and later the pull-through cache."""

    async def stage(
        self,
        upload_id: str,
        data_key: DataKey | None,
        algorithm: str | None = None,
        *,
        is_fresh: bool = False,
    ) -> Staged:
        """Begin to stage bytes under a new id, sealed with `data_key` if there is one.

        `algorithm` is hashed beside sha256. With `is_fresh`, the id was made for this call: then
        the store may wait until the bulk thread has bytes, and raises there what is wrong.

        Raises:
            StageBusy: something is staged under this id already.
            StoreUnavailable: the store failed.
            KeyNotTaken: there is a key, and the store keeps bytes plain.

        """
        ...

    async def resume(self, upload_id: str) -> Staged:
        """Take up staged bytes that nobody else will write to.

        The caller, who holds the lease of their session, calls `Staged.rewind` before anything
        else, and only then is an object of this id taken back to be staged: the row that would
        have made it a blob was never written.

        Raises:
            ObjectUnknown: nothing is staged under this id.
            StageBusy: another writer has it open.
            StoreUnavailable: the store failed.

        """
        ...

    async def stage_copy(
        self, upload_id: str, source_id: str, size: int, *, data_key: DataKey | None
    ) -> Staged:
        """Begin to stage bytes under a new id, with the first `size` that `source_id` has.

        The source is staged or an object, and a writer may still append to it or cut it off beyond
        `size`. It is not changed.

        Raises:
            ObjectUnknown: fewer bytes than `size` are there.
            StageBusy: something is staged under the new id already.
            StoreUnavailable: the store failed.
            KeyNotTaken: there is a key, and the store keeps bytes plain.

        """
        ...

    async def resumable(self, upload_id: str, received: int) -> int:
        """Return from which byte an upload can go on that has acknowledged `received` bytes.

        That is `received` or less: a store may keep whole parts only, or have lost bytes; 0 of an
        upload of which nothing is there. Bytes that are an object without a row count, as `resume`
        takes them up.

        Raises:
            StoreUnavailable: the store failed.

        """
        ...

    async def discard(self, upload_id: str) -> None:
        """Delete what is staged under an id; nothing there is success.

        Raises:
            StageBusy: a writer holds it.
            StoreUnavailable: the store failed.

        """
        ...

    async def check_room(self) -> None:
        """Check that there is room for one more byte.

        Raises:
            StoreUnavailable: the store is full, or failed.

        """
        ...

    async def remove_duplicate(self, object_id: str) -> None:
        """Delete an object just committed for which no row was written; absent is success.

        Its bytes are held already as another object.
        """
        ...

    async def replace(self, object_id: str, new_id: str) -> None:
        """Move the bytes of the object `new_id`, just committed, to `object_id`.

        `object_id` need not exist. Readers that have it open go on reading its old bytes.

        Raises:
            ObjectUnknown: there is no object `new_id`.
            StoreUnavailable: the store failed; the object has its old bytes or the new ones.

        """
        ...


class StoredObject(NamedTuple):
    """What a listing says of an object."""

    object_id: str
    stored_size: int


class Orphan(NamedTuple):
    """Stored bytes that no row owned when they were found, set aside for some days."""

    object_id: str
    set_aside_at: int
    """Microseconds since the epoch."""
    is_object: bool
    """True of an object, False of staged bytes."""
    stored_size: int


class Deleted(NamedTuple):
    """Which of several objects are gone."""

    object_ids: Sequence[str]
    refusal: StoreUnavailable | None = None
    """Why the others are still there."""


class BlobSweeper(Protocol):
    """Lists and deletes: the collector and fsck only; nobody else can delete an object.

    Deleting is safe only by the database that belongs to these bytes. So the store keeps the name
    of the last generation of that database (`registry.gc.generations`).
    """

    def partitions(self) -> Sequence[str]:
        """Return the names of the pieces in which the store lists its objects; always the same.

        Each object is in one of them, whichever other objects there are.
        """
        ...

    def list_objects(self, partition: str | None = None) -> AsyncIterator[StoredObject]:
        """Yield every object, or those of a partition, in no particular order."""
        ...

    def list_ids(self, partition: str) -> AsyncIterator[str]:
        """Yield the ids of a partition's objects, at less cost than `list_objects`."""
        ...

    def list_staged(self) -> AsyncIterator[StoredObject]:
        """Yield everything staged, under its upload id."""
        ...

    async def set_aside(self, object_id: str, moment: int, *, staged_too: bool = True) -> bool:
        """Make an object, or staged bytes, an orphan since `moment`; return False if absent.

        The caller holds the bytes (`BlobWriter.resume`). Durable when it returns.
        """
        ...

    def list_orphans(self) -> AsyncIterator[Orphan]:
        """Yield every orphan that was set aside, in no particular order."""
        ...

    async def take_back(self, object_id: str) -> bool:
        """Put an orphan back where it was; return False if there is none. Durable.

        `BlobReader.open` and `BlobWriter.resume` do so by themselves for an id that is absent,
        since only a row names it.
        """
        ...

    async def delete_orphan(self, orphan: Orphan) -> None:
        """Delete the bytes of an orphan for good; absent is success."""
        ...

    def scan_alone(self) -> AbstractAsyncContextManager[bool]:
        """Return a context manager: True for one process at a time, False for others meanwhile."""
        ...

    async def generation(self) -> str | None:
        """Return the generation that was noted last, or None."""
        ...

    async def note_generation(self, generation: str) -> None:
        """Note the generation of the database durably, in place of the last one."""
        ...

    async def delete(self, object_ids: Sequence[str]) -> Deleted:
        """Delete the bytes of objects; absent is success, and one refusal keeps no other."""
        ...


class BlobStore(BlobReader, BlobWriter, BlobSweeper, Protocol):
    """What an implementation provides; callers ask for the part they need."""

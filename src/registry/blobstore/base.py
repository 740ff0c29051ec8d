"""The seams of the blob store, cut by who needs them: readers, writers, and the one sweeper.

A store knows objects by id. Which account, repository or digest an object serves is not its
business, and no text of a user ever becomes part of a path.

Life of bytes: an upload *stages* them (appended at an offset, hashed while they arrive) and
`Staged.commit` turns them into an object, verified and flushed. There is no other door.

"Gone" and "broken" differ: what is not there raises `ObjectUnknown`; everything the medium
refuses (full, I/O error) raises `registry.errors.StoreUnavailable`, after which reading goes on.
After a failed flush, what this hold wrote is discarded: it may be lost even if a second flush would
succeed, so there is none. What was acknowledged before the hold stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from registry.oci.digest import Digest


class ObjectUnknown(Exception):
    """The store holds no object, or no staged bytes, under this id."""


class ObjectDamaged(Exception):
    """The stored bytes are fewer or more than the object's size."""


class StageBusy(Exception):
    """Another writer holds these staged bytes, in this process or another."""


class FileRegion(NamedTuple):
    """A run of bytes in an open file, ready for ``sendfile``."""

    descriptor: int
    offset: int
    count: int  # type: ignore[assignment] # hides tuple.count, as sendfile names it


class StoredRange(Protocol):
    """An open object, or a part of one. Close it when the last byte is sent."""

    @property
    def file_region(self) -> FileRegion | None:
        """Return where the bytes lie in a file, or None when they must be read through `chunks`."""
        ...

    def chunks(self) -> Iterator[memoryview]:
        """Yield the bytes in order; each view is valid until the next. Blocks: run in a thread."""
        ...

    def close(self) -> None:
        """Release the object; calling it again does nothing."""
        ...


class BlobReader(Protocol):
    """Gives bytes out: the data plane, the scrubber."""

    def open(
        self, object_id: str, start: int = 0, stop: int | None = None, size: int | None = None
    ) -> StoredRange:
        """Open bytes ``[start, stop)`` of an object; `stop` None is its end.

        With `size`, the object must have exactly that many bytes. Does not block on the disk beyond
        looking the object up.

        Raises:
            ObjectUnknown: there is no such object.
            ObjectDamaged: it has another size.
            StoreUnavailable: the medium refused.

        """
        ...

    def check(self, object_id: str, size: int) -> None:
        """Check that an object is there with `size` bytes, without opening it.

        Raises:
            ObjectUnknown, ObjectDamaged, StoreUnavailable: as `open`.

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
    layout: str


class Staged(Protocol):
    """Bytes of one upload on their way in, held by exactly one writer. All calls block."""

    @property
    def offset(self) -> int:
        """Return how many bytes are staged."""
        ...

    def rewind(
        self, offset: int, digests: Mapping[str, str] | None = None, algorithm: str | None = None
    ) -> None:
        """Go to the acknowledged `offset` of resumed bytes; longer ones are cut off there.

        Newly staged bytes, of which none are written, may be rewound (to 0) like resumed ones.

        `digests` is what `flush` returned at this offset, `algorithm` what `stage` was given.

        Raises:
            ObjectUnknown: fewer bytes than `offset` are there.

        """
        ...

    def write(self, view: memoryview, /) -> None:
        """Append bytes and hash them.

        Raises:
            StoreUnavailable: the disk is full or failed; what `offset` counts is still good.

        """
        ...

    def flush(self) -> Mapping[str, str]:
        """Make the staged bytes durable (file, then folder).

        After a failure, this hold can only be closed. The next one goes on at the offset that this
        one was rewound to; at 0, with new bytes.

        Returns the hex digest of everything staged for each algorithm whose hash saw every byte,
        so that a later `stage` on any worker need not read them again.
        """
        ...

    def commit(self, expected: Digest) -> Stored:
        """Verify the bytes against `expected`, flush them and make them an object.

        The only way an object comes to exist. sha256 is always computed; when another algorithm
        was asked for and not hashed on the way, the staged bytes are read once more. The hold
        lasts until `close`, so that nobody takes the object back before its row is written.

        Raises:
            DigestMismatch: the bytes hash to something else; they are discarded.
            StoreUnavailable: flushing failed, as in `flush`; or the bytes cannot be read again,
                and are discarded.

        """
        ...

    def discard(self) -> None:
        """Delete the staged bytes; afterwards the id is free. An object is left alone."""
        ...

    def close(self) -> None:
        """Let go of the bytes and keep them, so that a later request can `resume` them.

        Call it in every case and last, after the row is written; again does nothing.
        """
        ...


class BlobWriter(Protocol):
    """Takes bytes in: uploads, and later the pull-through cache."""

    def stage(self, upload_id: str, algorithm: str | None = None) -> Staged:
        """Begin to stage bytes under a new id; `algorithm` is hashed beside sha256. Blocks briefly.

        Raises:
            StageBusy: something is staged under this id already.
            StoreUnavailable: the medium refused.

        """
        ...

    def resume(self, upload_id: str) -> Staged:
        """Take up staged bytes; the caller reads under this hold how far they are acknowledged.

        If the session is open it calls `Staged.rewind` before anything else, and only then is an
        object of this id taken back to be staged: the row that would have made it a blob was
        never written. If the session has ended it calls `Staged.close`. The hold ends with
        `close`, `discard`, or the death of the process. Blocks briefly.

        Raises:
            ObjectUnknown: nothing is staged under this id.
            StageBusy: another writer holds it.
            StoreUnavailable: the medium refused.

        """
        ...

    def discard(self, upload_id: str) -> None:
        """Delete what is staged under an id; nothing there is success. Blocks.

        Raises:
            StageBusy: a writer holds it.

        """
        ...

    def check_room(self) -> None:
        """Check that there is room for one more byte. Blocks briefly.

        Raises:
            StoreUnavailable: the store is full, or the medium failed.

        """
        ...

    def remove_duplicate(self, object_id: str) -> None:
        """Delete an object just committed for which no row was written; absent is success.

        Its bytes are held already as another object. Blocks.
        """
        ...

    def replace(self, object_id: str, new_id: str) -> None:
        """Move the bytes of the object `new_id`, just committed, to `object_id`. Blocks.

        `object_id` need not exist. Readers that have it open go on reading its old bytes.

        Raises:
            ObjectUnknown: there is no object `new_id`.
            StoreUnavailable: the medium refused; the object has its old bytes or the new ones.

        """
        ...


class StoredObject(NamedTuple):
    """What a listing says of an object."""

    object_id: str
    stored_size: int


class Orphan(NamedTuple):
    """Stored bytes that no row owned when they were found, kept for some days."""

    object_id: str
    set_aside_at: int
    """Microseconds since the epoch."""
    is_object: bool
    """True of an object, False of staged bytes."""
    stored_size: int


class BlobSweeper(Protocol):
    """Lists and deletes: the collector and fsck only; nobody else can delete an object.

    Deleting is safe only by the database that belongs to these bytes. So the store keeps the name
    of the last generation of that database (`registry.gc.generations`).
    """

    def list_objects(self, shard: int | None = None) -> Iterator[StoredObject]:
        """Yield every object, in no particular order. Blocks.

        With `shard`, only those whose ids end in this number, in two hex digits.
        """
        ...

    def list_ids(self, shard: int) -> Iterator[str]:
        """Yield the ids of a shard's objects, without opening their files. Blocks."""
        ...

    def list_staged(self) -> Iterator[StoredObject]:
        """Yield everything staged, under its upload id. Blocks."""
        ...

    def set_aside(self, object_id: str, moment: int, *, staged_too: bool = True) -> bool:
        """Make an object, or staged bytes, an orphan since `moment`; return False if absent.

        The caller holds the bytes (`BlobWriter.resume`). Durable when it returns. Blocks.
        """
        ...

    def list_orphans(self) -> Iterator[Orphan]:
        """Yield every orphan, in no particular order. Blocks."""
        ...

    def take_back(self, object_id: str) -> bool:
        """Put an orphan back where it was; return False if there is none. Durable. Blocks.

        `BlobReader.open` and `BlobWriter.resume` do so by themselves for an id that is absent,
        since only a row names it.
        """
        ...

    def delete_orphan(self, orphan: Orphan) -> None:
        """Delete the bytes of an orphan for good; absent is success. Blocks."""
        ...

    def scan_alone(self) -> AbstractContextManager[bool]:
        """Return a context manager: True for one process at a time, False for others meanwhile."""
        ...

    def generation(self) -> str | None:
        """Return the generation that was noted last, or None. Blocks."""
        ...

    def note_generation(self, generation: str) -> None:
        """Note the generation of the database durably, in place of the last one. Blocks."""
        ...

    def delete(self, object_id: str) -> None:
        """Delete an object's bytes; absent is success. Blocks."""
        ...


class BlobStore(BlobReader, BlobWriter, BlobSweeper, Protocol):
    """What an implementation provides; callers ask for the part they need."""

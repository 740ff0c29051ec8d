"""The interfaces of the blob store: `BlobReader`, `BlobWriter` and `BlobSweeper`.

A store knows objects by id. It does not know which account, repository or digest an object belongs
to, and no text of a user becomes part of a path.

An upload *stages* bytes (appended at an offset, hashed as they arrive); `Staged.commit` verifies
and flushes them, and makes them an object. Objects come to exist in no other way.

A coroutine here does not block the event loop: if it must wait for a disk or a network, it does so
in a thread. Plain methods whose docstring says "Blocks" are for bulk threads, which move the bytes.

Absent bytes raise `ObjectUnknown`. Errors of the disk or the network (full, I/O error) raise
`registry.errors.StoreUnavailable`; reading other objects still works. After a failed flush, what
this hold wrote is discarded, since it may be lost even if a second flush succeeds. What was
acknowledged before the hold stays.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from cloudcore.serving.asgi import FileRegion
from registry.blobstore.sweeper import BlobSweeper
from registry.errors import StoreUnavailable
from registry.oci.digest import Digest

PLAIN: Final = "plain"
"""Encoding of bytes that are stored as they were pushed."""
SEALED: Final = "sealed"
"""Encoding of bytes that are stored encrypted (`registry.blobstore.sealed.frame_format`)."""
_KEY_BYTES: Final = 32


class ObjectUnknown(Exception):
    """The store holds no object, or no staged bytes, under this id."""


class ObjectDamaged(Exception):
    """The stored bytes are fewer or more than the object's size."""


class ObjectChanged(StoreUnavailable):
    """A part of a sealed object does not open any more: its stored bytes were changed."""


class StageBusy(Exception):
    """Another writer holds these staged bytes, in this process or another."""


class StagedDropped(Exception):
    """Staged bytes were discarded or truncated while they were being read."""


class DeletionsHeld(StoreUnavailable):
    """A backup is under way, which may need the bytes."""

    def __init__(self) -> None:
        super().__init__("a backup is under way; nothing is deleted until it ends")


@dataclass(frozen=True, slots=True)
class DataKey:
    """The key that seals the bytes of one object.

    Raises:
        ValueError: it has not 32 bytes.

    """

    plaintext: bytes = field(repr=False)
    """32 random bytes that were made for this object alone."""
    context: bytes
    """The context that seals the bytes beside the object's id, such as its owner; to 64 KiB."""

    def __post_init__(self) -> None:
        if len(self.plaintext) != _KEY_BYTES:
            raise ValueError(f"a data key has {_KEY_BYTES} bytes")


class OpenObject(Protocol):
    """An object open for reading, or staged bytes that may still grow.

    An object stays readable after its deletion. Ranges count bytes as they were pushed, whatever
    their encoding: ``[start, stop)``, where `stop` None is the end. A range outside the object
    raises ValueError.
    """

    @property
    def length(self) -> int | None:
        """Return the number of bytes, or None while it grows."""
        ...

    def file_region(self, start: int = 0, stop: int | None = None) -> FileRegion | None:
        """Return a range as a region of a file, or None if it can only be read by `chunks`.

        None for bytes that are sealed, still grow, or are not in a file. Valid until `aclose`.
        """
        ...

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        """Yield a range in order; each view is valid until the next. Blocks.

        Raise `StoreUnavailable` if reading failed, the object has become shorter, or a sealed
        object was changed (no byte of a changed frame is yielded); `ValueError` if the object is
        one that still grows.
        """
        ...

    def shared_chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        """Yield a range for a client like `chunks`, from decrypted frames that readers share.

        Frames that another client has just been sent need not be read again. To verify stored
        bytes, use `chunks`.
        """
        return self.chunks(start, stop)

    def stream(self, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """Yield a range in order, in parts of at most 256 KiB.

        If the bytes grow, wait for those of the range to be written; with `stop` None, wait for
        the commit.

        Raise `StagedDropped` if they were discarded, or replaced by others; `StoreUnavailable` as
        `chunks` does.
        """
        ...

    def growing(self, start: int, stop: int) -> AsyncIterator[bytes]:
        """Yield a range like `stream`, but end early if `whole` has the rest by then."""
        return self.stream(start, stop)

    async def whole(self) -> OpenObject:
        """Return the object of committed bytes; it is open until `aclose`."""
        return self

    async def aclose(self) -> None:
        """Release the object; calling it again does nothing."""
        ...


class BlobReader(Protocol):
    """Read objects: for the data plane and fsck."""

    async def open(
        self, object_id: str, size: int | None = None, data_key: DataKey | None = None
    ) -> OpenObject:
        """Open an object of `size` bytes, or of any size if None; a sealed one with its data key.

        `size` is that of the bytes as they were pushed.

        Raises:
            ObjectUnknown: there is no such object.
            ObjectDamaged: it has another size, or was not sealed with this key for this object.
            StoreUnavailable: the store failed.

        """
        ...

    async def open_staged(self, upload_id: str, data_key: DataKey | None = None) -> OpenObject:
        """Open staged bytes, to read them while they grow; or the object, if they are committed.

        Staged bytes may be neither flushed nor verified yet. Writes of other processes become
        visible after a short delay. Sealed bytes become visible by frames of 1 MiB, and the rest
        when it is flushed or committed.

        Raise `ObjectUnknown`, `ObjectDamaged` or `StoreUnavailable` as `open` does.
        """
        ...

    async def open_stored(self, object_id: str, stored_size: int) -> OpenObject:
        """Open the stored bytes of an object as they are, sealed or plain, to verify them.

        They are read without displacing others from the kernel's memory.

        Raises:
            ObjectUnknown, StoreUnavailable: as `open`.
            ObjectDamaged: there are more or fewer than `stored_size` bytes.

        """
        ...

    async def check(self, object_id: str, stored_size: int) -> None:
        """Check that an object exists with `stored_size` bytes, without opening it.

        Raise `ObjectUnknown`, `ObjectDamaged` or `StoreUnavailable` as `open` does.
        """
        ...

    def check_cached(self, object_id: str, stored_size: int) -> bool:
        """Return True if the object is known, without waiting, to exist with `stored_size` bytes.

        Never raises. If False, the state is unknown: call `check`.
        """
        ...


class Stored(NamedTuple):
    """An object that was just committed, or an inline one that is about to be recorded."""

    object_id: str
    digest: Digest
    """sha256 of the bytes: the identity under which it is stored."""
    alias: Digest | None
    """The verified digest it was committed under, if that is not sha256."""
    size: int
    stored_size: int
    encoding: str
    """How the bytes are stored: `PLAIN`, or `SEALED` under a data key."""
    checksum: str | None = None
    """BLAKE3 of the stored bytes in hex; None for plain bytes, whose `digest` is theirs."""
    body: bytes | None = None
    """The stored bytes of an inline object, or None if the store has them."""

    def __repr__(self) -> str:
        """Return the id and the digest alone: no log shows the bytes of a blob."""
        return f"Stored({self.object_id!r}, {self.digest!r})"


class Staged(Protocol):
    """The staged bytes of one upload, held by exactly one writer."""

    @property
    def offset(self) -> int:
        """Return the number of staged bytes; after `BlobWriter.resume`, call `rewind` first."""
        ...

    async def rewind(
        self,
        offset: int,
        digests: Mapping[str, str] | None = None,
        algorithm: str | None = None,
        *,
        data_key: DataKey | None,
    ) -> None:
        """Go to the acknowledged `offset` of resumed bytes; cut off what is beyond.

        Also allowed, to 0, right after `BlobWriter.stage`.

        `digests` is what `flush` returned at this offset; `algorithm` and `data_key` are what
        `BlobWriter.stage` was given. Resumed bytes may begin anew, at 0, with another data key or
        none.

        Raises:
            ObjectUnknown: there are fewer bytes than `offset`; or they are sealed, and do not open.
            StoreUnavailable: the store failed.
            ValueError: the hold was begun with a data key and there is none now, or the reverse.

        """
        ...

    def write(self, view: memoryview, /) -> None:
        """Append bytes and hash them. Blocks.

        Raise `StoreUnavailable` if the store is full or failed; the bytes up to `offset` are still
        good.
        """
        ...

    def flush(self) -> Mapping[str, str]:
        """Make the staged bytes durable (file, then folder); return their digests. Blocks.

        The result is a hex digest for each algorithm that hashed every byte, so that a later
        `rewind` on any worker need not read the bytes again.

        Write more in this hold only after the offset was acknowledged. After a failure, this hold
        can only be closed. The next one continues at the offset that this one was rewound to;
        if that is 0, with new bytes.
        """
        ...

    def commit(self, expected: Digest | None) -> Stored:
        """Verify the bytes against `expected`, flush them and make them an object. Blocks.

        None expects whatever they hash to. sha256 is always computed; if `expected` has another
        algorithm that was not hashed as the bytes arrived, they are read again. The hold lasts
        until `aclose`, so that nobody takes the object for an orphan before its row is written.

        Raise `DigestMismatch` if the bytes hash to something else; they are still staged. Raise
        `StoreUnavailable` if flushing failed, as in `flush`; or the bytes cannot be read again, and
        are discarded.
        """
        ...

    async def discard(self) -> None:
        """Delete the staged bytes and free the id; do nothing if they are an object."""
        ...

    async def aclose(self) -> None:
        """End the hold and keep the bytes, so that a later request can `resume` them.

        Always call it last, after the row is written; calling it again does nothing.
        """
        ...


class BlobWriter(Protocol):
    """Store bytes: for uploads."""

    async def stage(
        self,
        upload_id: str,
        data_key: DataKey | None,
        algorithm: str | None = None,
        *,
        is_fresh: bool = False,
    ) -> Staged:
        """Begin to stage bytes under a new id, sealed with `data_key` if there is one.

        `algorithm` is hashed beside sha256. `is_fresh`: the id was made for this call, so the store
        may begin when the bulk thread writes the first bytes, and raise its errors there.

        Raise `StageBusy` if something is already stored under this id, `StoreUnavailable` if the
        store failed.
        """
        ...

    async def resume(self, upload_id: str) -> Staged:
        """Hold staged bytes again; the caller has the lease of their session.

        Call `Staged.rewind` next. If the bytes are an object whose row was never written (a crash
        after the commit), that makes them staged bytes again.

        Raises:
            ObjectUnknown: nothing is staged under this id.
            StageBusy: another writer has it open.
            StoreUnavailable: the store failed.

        """
        ...

    async def stage_copy(
        self,
        upload_id: str,
        source_id: str,
        size: int,
        *,
        data_key: DataKey | None,
        source_key: DataKey | None = None,
    ) -> Staged:
        """Begin to stage bytes under a new id, with a copy of the first `size` of `source_id`.

        The copy is sealed with `data_key`; `source_key` opens the source, if that is sealed.

        The source is staged bytes or an object, and is not changed. Meanwhile a writer may append
        to it, or cut off bytes beyond `size`.

        Raises:
            ObjectUnknown: the source has fewer bytes than `size`, or does not open.
            StageBusy: something is already stored under the new id.
            StoreUnavailable: the store failed.

        """
        ...

    async def resumable(self, upload_id: str, received: int, *, is_sealed: bool = False) -> int:
        """Return the offset at which an upload with `received` acknowledged bytes can continue.

        Less than `received` if the store keeps only whole parts, or has lost bytes; 0 if it has
        none. Bytes that are an object without a row count, since `resume` accepts them. Sealed
        bytes are counted by their stored size, without a key: if there are too few, those of whole
        frames.

        Raise `StoreUnavailable` if the store failed.
        """
        ...

    async def discard(self, upload_id: str) -> None:
        """Delete the staged bytes of an id; do nothing if there are none.

        Raise `StageBusy` if a writer holds it, `StoreUnavailable` if the store failed.
        """
        ...

    async def check_room(self) -> None:
        """Check that there is room for one more byte.

        Raise `StoreUnavailable` if the store is full, or failed.
        """
        ...

    async def remove_duplicate(self, object_id: str) -> None:
        """Delete a just committed object whose row was not written; do nothing if it is absent.

        Use it if another object has the same bytes, or the repository is gone.
        """
        ...


class BlobStore(BlobReader, BlobWriter, BlobSweeper, Protocol):
    """The whole interface of a store; callers take the part they need."""


class BlobLinks(Protocol):
    """Makes presigned URLs, with which anyone can read an object for some minutes."""

    def known(self, object_id: str) -> str | None:
        """Return a recent URL, or None: then call `link`."""
        ...

    async def link(self, object_id: str, stored_size: int) -> str:
        """Return a URL of an object after checking that it exists with `stored_size` bytes.

        Raise `ObjectUnknown`, `ObjectDamaged` or `StoreUnavailable` as `BlobReader.check` does.
        """
        ...

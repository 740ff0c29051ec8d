"""Types of all blob stores: data keys, open objects, stored and listed bytes, and errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from cloudcore.serving.asgi import FileRegion
from registry.errors import StoreUnavailable
from registry.oci.digest import Digest

PLAIN: Final = "plain"
"""Encoding of bytes that are stored as they were pushed."""
SEALED: Final = "sealed"
"""Encoding of bytes that are stored encrypted (`registry.blobstore.sealed.frame_format`)."""
_KEY_BYTES: Final = 32


class ObjectUnknown(Exception):
    """The store has no object and no staged bytes under this id, or fewer bytes than requested."""


class ObjectDamaged(Exception):
    """The stored bytes do not have the object's size, or cannot be decrypted with its key."""


class ObjectChanged(StoreUnavailable):
    """A frame of a sealed object no longer decrypts: its stored bytes were changed."""


class StageBusy(Exception):
    """Another writer, in any process, holds these staged bytes, or the new id is in use."""


class StagedDropped(Exception):
    """Staged bytes were discarded or truncated while they were being read."""


class DeletionsHeld(StoreUnavailable):
    """A deletion is refused because a backup, which may need the bytes, is under way."""

    def __init__(self) -> None:
        super().__init__("a backup is under way; nothing is deleted until it ends")


@dataclass(frozen=True, slots=True)
class DataKey:
    """The key that seals the bytes of one object.

    Raises:
        ValueError: the key does not have 32 bytes.

    """

    plaintext: bytes = field(repr=False)
    """32 random bytes, made for this object alone."""
    context: bytes
    """Bytes without which the sealed bytes do not decrypt, such as the owner; less than 64 KiB."""

    def __post_init__(self) -> None:
        if len(self.plaintext) != _KEY_BYTES:
            raise ValueError(f"a data key has {_KEY_BYTES} bytes")


class OpenObject(Protocol):
    """An object open for reading, or staged bytes that may still grow.

    An object stays readable after its deletion. Ranges ``[start, stop)`` count bytes as they were
    pushed, whatever their encoding; `stop` None is the end. A range outside the object raises
    `ValueError`.
    """

    @property
    def length(self) -> int | None:
        """Return the number of bytes, or None while the bytes grow."""

    def file_region(self, start: int = 0, stop: int | None = None) -> FileRegion | None:
        """Return a range as a region of a file, valid until `aclose`; None if there is none.

        Bytes that are sealed, still grow, or are not in a file must be read by the other methods.
        """

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        """Yield a range in order; each view is valid until the next. Blocks.

        Raise `StoreUnavailable` if reading failed, the object has become shorter, or a sealed
        object was changed (no byte of a changed frame is yielded); `ValueError` if the bytes still
        grow.
        """

    def shared_chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        """Yield a range as `chunks` does; readers of the same object may share decrypted frames.

        For clients: frames that another client has just been sent need not be read again. To verify
        stored bytes, use `chunks`.
        """
        return self.chunks(start, stop)

    def stream(self, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """Yield a range in order, in parts of at most 256 KiB.

        If the bytes grow, wait until the range is written; with `stop` None, until the commit.

        Raise `StagedDropped` if the staged bytes were discarded or replaced; `StoreUnavailable` as
        `chunks` does.
        """

    def growing(self, start: int, stop: int) -> AsyncIterator[bytes]:
        """Yield a range as `stream` does, but end early once `whole` has the rest."""
        return self.stream(start, stop)

    async def whole(self) -> OpenObject:
        """Return the committed object; `aclose` of this object closes it."""
        return self

    async def aclose(self) -> None:
        """Release the object; calling it again does nothing."""


class Stored(NamedTuple):
    """An object that was just committed, or an inline object that is about to be recorded."""

    object_id: str
    digest: Digest
    """sha256 of the bytes as pushed, under which the object is stored."""
    alias: Digest | None
    """The verified digest that the client gave, if that is not sha256; else None."""
    size: int
    stored_size: int
    encoding: str
    """How the bytes are stored: `PLAIN`, or `SEALED` under a data key."""
    checksum: str | None = None
    """BLAKE3 of the stored bytes in hex; None for plain bytes, since `digest` is their checksum."""
    body: bytes | None = None
    """The stored bytes of an inline object; None if the store has them."""

    def __repr__(self) -> str:
        """Return only the id and the digest: no log may show the bytes of a blob."""
        return f"Stored({self.object_id!r}, {self.digest!r})"


class ListedBytes(NamedTuple):
    """An object or staged bytes in a listing."""

    object_id: str
    stored_size: int


class Orphan(NamedTuple):
    """Stored bytes that had no row when found, and were set aside for some days before deletion."""

    object_id: str
    set_aside_at: int
    """Microseconds since the epoch."""
    is_object: bool
    """True for an object, False for staged bytes."""
    stored_size: int


class Deleted(NamedTuple):
    """The result of a deletion: the deleted objects, and the refusal if some were not deleted."""

    object_ids: Sequence[str]
    refusal: StoreUnavailable | None = None
    """Why the other objects were not deleted; None if all were."""


class BlobLinks(Protocol):
    """Makes presigned URLs, with which anyone can read an object for some minutes."""

    def known(self, object_id: str) -> str | None:
        """Return a recent URL of an object, or None: then call `link`."""

    async def link(self, object_id: str, stored_size: int) -> str:
        """Return a URL of an object after checking that it exists with `stored_size` bytes.

        Raise `ObjectUnknown`, `ObjectDamaged` or `StoreUnavailable` as `BlobReader.check` does.
        """

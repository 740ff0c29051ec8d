"""Dependencies of buckets: the store of the bytes, and the KMS keys of accounts.

An object is a sequence of pieces, each stored separately and sealed under its own data key, which
is wrapped under a KMS key. A writer holds the bytes of a piece until the row is committed, so that
no scan of the store mistakes the bytes for orphans.
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterator,
    Sequence,
)
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from cloudcore.clock import Clock
from cloudcore.db.base import Connection, Database
from cloudcore.events import EVENTS, Events
from cloudcore.metering.needs import METER, Meter
from cloudcore.objects.stored_rows import Owned
from cloudcore.objects.wraps import Rewrapped, WrappedKey
from cloudcore.ports import Opening, Port
from cloudcore.serving.asgi import FileRegion
from cloudcore.web.bodies import ReferencedKey

SHREDDED: Final = "shredded"
"""The encoding of a piece whose KMS key was deleted: its bytes and its data key are erased."""


class StoredPiece(NamedTuple):
    """The columns of a piece's row that describe its stored bytes.

    Implements `objects.rewrapping.WrapUse`.
    """

    id: str
    size: int
    stored_size: int
    sha256: str
    """Of the bytes as the client sent them, in hex."""
    encoding: str
    stored_checksum: str | None
    """BLAKE3 of the stored bytes in hex; None if they are plain."""
    body: bytes | None
    """The stored bytes if they are inline: few bytes, stored only in the row. Else None."""
    kms_key_id: str | None
    wrapped: bytes | None
    """The data key, wrapped under the KMS key; None if the bytes are plain."""

    def __repr__(self) -> str:
        """Return only the id and the size, so that no bytes or keys get into logs."""
        return f"StoredPiece({self.id!r}, {self.size})"

    def __str__(self) -> str:
        """Return the name of the piece for messages."""
        return f"piece {self.id}"

    @property
    def stored_id(self) -> str:
        """Return the id of the stored bytes, which is the piece's id."""
        return self.id

    @property
    def obstacle(self) -> str | None:
        """Return why the piece cannot be rewrapped ("plain" or "key_deleted"), or None."""
        if self.kms_key_id is None:
            return "plain"
        return "key_deleted" if self.encoding == SHREDDED else None

    @property
    def wraps(self) -> Sequence[WrappedKey]:
        """Return the one wrap of the piece's data key; empty if the piece is not sealed."""
        if self.kms_key_id is None or self.wrapped is None:
            return ()
        return (WrappedKey(self.kms_key_id, self.wrapped, self.id),)


class StagedPiece(Protocol):
    """The bytes of a new piece, held by one writer: until `aclose`, no scan deletes them."""

    def write(self, view: memoryview, /) -> None:
        """Append bytes; raise `Unavailable` if the store is full or failed. Blocks."""

    def finish(self) -> StoredPiece:
        """Make the bytes durable; return the piece to record in a row. Blocks.

        The bytes stay held until `aclose`.

        Raise `Unavailable` as `write` does.
        """

    async def discard(self) -> None:
        """Delete the bytes, finished or not; call this if no row will refer to them."""

    async def aclose(self) -> None:
        """Release the hold on the bytes.

        Always call it at the end, after the row is written or the bytes are discarded.
        """


class OpenBytes(Protocol):
    """A range of the bytes of consecutive pieces, opened as one.

    The first piece is opened at once, each later piece when the reader reaches it. Bytes that are
    absent or were changed raise `Unavailable` before any of them is returned.
    """

    @property
    def length(self) -> int:
        """Return the number of bytes."""

    def file_region(self) -> FileRegion | None:
        """Return the range as a region of a file, valid until `aclose`; None if not in one file."""

    def chunks(self, skipped: int = 0) -> Iterator[memoryview]:
        """Yield the bytes after the first `skipped`; a view is valid until the next one. Blocks."""

    def stream(self) -> AsyncIterator[bytes]:
        """Yield the bytes in order, in parts of at most 256 KiB."""

    async def aclose(self) -> None:
        """Close the range; calling it again does nothing."""


KeyAccess = object
"""What the store returns after checking KMS keys in a transaction, to be passed to `stage` or
`open`. Only the store knows the type."""


class BucketBytes(Protocol):
    """The store of the bytes of all buckets.

    Calls that need a KMS key raise `KeyDeleted` or `KeyDisabled` if it cannot be used, and
    `Unavailable` if the provider of its material does not answer.
    """

    @property
    def seals(self) -> bool:
        """Return True if new pieces are sealed."""

    def key_to_write(self, tx: Connection, account_id: str, kms_key_id: str | None) -> KeyAccess:
        """Check that a KMS key is usable, and return the access for `stage`.

        If `kms_key_id` is None, check the account's platform key.
        """

    def keys_to_read(
        self, tx: Connection, account_id: str, pieces: Sequence[StoredPiece]
    ) -> KeyAccess:
        """Check that the KMS keys of pieces are usable, and return the access for `open`."""

    async def stage(self, account_id: str, usable: KeyAccess) -> StagedPiece:
        """Begin a piece with the access of `key_to_write`; store nothing before the first write."""

    async def open(
        self,
        account_id: str,
        pieces: Sequence[StoredPiece],
        usable: KeyAccess,
        start: int,
        stop: int,
    ) -> OpenBytes:
        """Open the range ``[start, stop)`` of pieces of one account, in this order.

        Raise `BytesDamaged` if the first piece is absent, has another size, or cannot be opened,
        `Unavailable` if the store failed.
        """

    async def rewrap(
        self, account_id: str, kms_key_id: str, wraps: Sequence[Sequence[WrappedKey]], /
    ) -> Rewrapped:
        """Wrap data keys under a KMS key (`cloudcore.objects.wraps.rewrap`)."""

    def hold_keys(self, tx: Connection, account_id: str, kms_key_ids: Collection[str]) -> bool:
        """Lock KMS keys until `tx` ends; return False if one of them is not enabled."""

    async def delete(self, piece_ids: Sequence[str]) -> Sequence[str]:
        """Delete the bytes of pieces; return the ids whose bytes are now absent."""

    async def scan(self, owned: Owned) -> int:
        """Quarantine stored bytes that have no row and are not held; return the number of pieces.

        `owned` returns which ids have a row. Each call scans a part of the store; the calls of a
        day scan all of it. Bytes that were quarantined long ago are deleted. A quarantined piece
        that has a row is restored when it is opened.
        """


class BucketKeys(Protocol):
    """The KMS keys to which buckets can be bound."""

    def resolve(
        self, tx: Connection, account_id: str, value: str, authorize: Callable[[str], None]
    ) -> ReferencedKey:
        """Return the key of an account that an id, a name or a CRN refers to.

        `authorize` is called with the key's CRN, and raises unless the caller may use the key.

        Raises:
            InvalidInput: the reference is malformed, of another region or account, or its key
                cannot be used for buckets.
            NotFound: there is no such key.
            AccessDenied: `authorize` refused.

        """

    def describe(self, tx: Connection, account_id: str, key_id: str | None) -> ReferencedKey | None:
        """Return the key with this id (None: the account's platform key), or None if absent."""


BYTES: Final[Port[BucketBytes]] = Port("storage.bytes")
KEYS: Final[Port[BucketKeys]] = Port("storage.keys")
ACCOUNT_BYTES: Final[Port[int]] = Port("storage.account_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageNeeds:
    """The dependencies of the routes and the timers of buckets."""

    database: Database
    clock: Clock
    new_id: Callable[[], str]
    bytes: BucketBytes
    keys: BucketKeys
    events: Events
    meter: Meter
    account_bytes: int
    """The default quota: bytes in the buckets of an account."""


async def open_needs(opening: Opening) -> StorageNeeds:
    """Return what the storage family needs in this process."""
    return StorageNeeds(
        database=opening.install.database,
        clock=opening.install.clock,
        new_id=opening.install.new_id,
        bytes=await opening.get(BYTES),
        keys=await opening.get(KEYS),
        events=await opening.get(EVENTS),
        meter=await opening.get(METER),
        account_bytes=await opening.get(ACCOUNT_BYTES),
    )

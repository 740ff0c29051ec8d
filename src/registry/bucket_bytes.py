"""Part of the composition root: the bytes of buckets lie in a store like that of the blobs.

Each piece is an object of the store, sealed as blobs are, under a data key that is bound to the
account and the piece. Small pieces are inline: their row has the bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.kms.key import Key
from cloudcore.kms.rows import KEY_ROWS, find_platform_key
from cloudcore.kms.vault import LookedAt
from cloudcore.storage import errors as storage_errors
from cloudcore.storage.needs import (
    SHREDDED,
    BucketBytes,
    Looked,
    NewWrap,
    Owned,
    Rewrapped,
    SealedPiece,
    StoredPiece,
)
from registry import errors
from registry.blobstore.base import PLAIN, DataKey, ObjectDamaged, ObjectUnknown, Staged, Stored
from registry.blobstore.filesystem import FilesystemStore
from registry.blobstore.inline import store_inline
from registry.bucket_orphans import BucketOrphans
from registry.bucket_reading import OpenPieces, open_piece
from registry.errors import KmsKeyDeleted, KmsKeyDisabled
from registry.keys import DataKeys, WrapBroken, WrappedKey
from registry.metadata.blobs.wraps import hold_enabled
from registry.oci.digest import digest_of

_REASONS: Final[dict[type[Exception], str]] = {
    KmsKeyDeleted: "key_deleted",
    KmsKeyDisabled: "key_disabled",
    WrapBroken: "unreadable",
}


async def rewrap_pieces(
    data_keys: DataKeys, account_id: str, kms_key_id: str, pieces: Sequence[SealedPiece]
) -> Rewrapped:
    """Wrap the data keys of pieces under a KMS key (`BucketBytes.rewrap`).

    Raises:
        KmsKeyDeleted, KmsKeyDisabled: of the KMS key to wrap under.
        Unavailable: the provider of a key's material is not there.

    """
    kept: Counter[str] = Counter()
    wraps: list[WrappedKey] = []
    for piece in pieces:
        if piece.kms_key_id is None or piece.wrapped is None:
            kept["plain"] += 1
        elif piece.encoding == SHREDDED:
            kept["key_deleted"] += 1
        else:
            wraps.append(WrappedKey(piece.kms_key_id, piece.wrapped, piece.id))
    wraps.sort(key=lambda wrap: wrap.kms_key_id)
    opened: list[tuple[WrappedKey, DataKey]] = []
    for _, group in groupby(wraps, lambda wrap: wrap.kms_key_id):
        opened += await _open_group(data_keys, account_id, list(group), kept)
    made = await data_keys.wrap_all(
        account_id, kms_key_id, [(wrap.stored_id, key) for wrap, key in opened]
    )
    return Rewrapped(
        [
            NewWrap(wrap.stored_id, wrap.kms_key_id, kms_key_id, wrapped)
            for (wrap, _), wrapped in zip(opened, made, strict=True)
        ],
        kept,
    )


async def _open_group(
    data_keys: DataKeys, account_id: str, wraps: Sequence[WrappedKey], kept: Counter[str]
) -> list[tuple[WrappedKey, DataKey]]:
    """Open wraps under one key, all at once; if one does not open, each by itself."""
    try:
        return list(zip(wraps, await data_keys.open_all(account_id, wraps), strict=True))
    except tuple(_REASONS) as error:
        if len(wraps) == 1 or not isinstance(error, WrapBroken):
            kept[_REASONS[type(error)]] += len(wraps)
            return []
    opened = []
    for wrap in wraps:
        opened += await _open_group(data_keys, account_id, [wrap], kept)
    return opened


class Sealing(NamedTuple):
    """How pieces are stored."""

    keys: DataKeys
    seals: bool
    """False: new pieces are stored plain."""
    inline_bytes: int
    """Up to so many bytes, a piece is inline."""


class _Writing(NamedTuple):
    kms_key_id: str
    keys: LookedAt


class _Reading(NamedTuple):
    keys: LookedAt | None
    """None if no piece is sealed."""


class StoreOfBuckets(BucketBytes):
    """The bytes of all buckets, in one store."""

    def __init__(
        self,
        store: FilesystemStore,
        sealing: Sealing,
        orphans: BucketOrphans,
        new_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._sealing = sealing
        self._orphans = orphans
        self._new_id = new_id

    @property
    def seals(self) -> bool:
        """Return True if new pieces are sealed (`BucketBytes.seals`)."""
        return self._sealing.seals

    def look_to_write(self, tx: Connection, account_id: str, kms_key_id: str | None) -> Looked:
        """Find a KMS key usable (`BucketBytes.look_to_write`)."""
        if not self._sealing.seals:
            return None
        if kms_key_id is None:
            key = find_platform_key(tx, account_id)
        else:
            key = KEY_ROWS.find(tx, account_id, kms_key_id)
        found = _usable(key)
        looked = self._sealing.keys.look_at(tx, account_id, found.id, found.current_version)
        return _Writing(found.id, looked)

    def look_to_read(
        self, tx: Connection, account_id: str, pieces: Sequence[StoredPiece]
    ) -> Looked:
        """Find the KMS keys of pieces usable (`BucketBytes.look_to_read`)."""
        if any(piece.encoding == SHREDDED for piece in pieces):
            raise storage_errors.KmsKeyDeleted
        wraps = [_wrap(piece) for piece in pieces if piece.encoding != PLAIN]
        if not wraps:
            return _Reading(None)
        with _translated():
            return _Reading(self._sealing.keys.look_for(tx, account_id, wraps))

    async def stage(self, account_id: str, looked: Looked) -> _StagedPiece:
        """Begin a new piece (`BucketBytes.stage`)."""
        piece_id = self._new_id()
        seal = None
        if isinstance(looked, _Writing):
            data_key = self._sealing.keys.new(account_id)
            with _translated():
                (wrapped,) = await self._sealing.keys.wrap_looked_at(
                    looked.keys, [(piece_id, data_key)]
                )
            seal = _Seal(looked.kms_key_id, data_key, wrapped)
        staged = await self._store.stage(piece_id, seal and seal.data_key, is_fresh=True)
        return _StagedPiece(self._store, piece_id, staged, seal, self._sealing.inline_bytes)

    async def open(
        self, account_id: str, pieces: Sequence[StoredPiece], looked: Looked
    ) -> OpenPieces:
        """Open pieces, the first at once (`BucketBytes.open`)."""
        keys = await self._open_keys(account_id, pieces, looked)
        try:
            first = await open_piece(self._store, pieces[0], keys[0])
        except (ObjectUnknown, ObjectDamaged):
            raise storage_errors.BytesDamaged from None
        return OpenPieces(self._store, pieces, keys, first)

    async def rewrap(
        self, account_id: str, kms_key_id: str, pieces: Sequence[SealedPiece]
    ) -> Rewrapped:
        """Wrap data keys under another KMS key (`BucketBytes.rewrap`)."""
        with _translated():
            return await rewrap_pieces(self._sealing.keys, account_id, kms_key_id, pieces)

    def hold_keys(self, tx: Connection, account_id: str, kms_key_ids: Collection[str]) -> bool:
        """Hold KMS keys, if all are enabled (`BucketBytes.hold_keys`)."""
        return hold_enabled(tx, account_id, kms_key_ids)

    async def delete(self, piece_ids: Sequence[str]) -> Sequence[str]:
        """Delete the bytes of pieces (`BucketBytes.delete`)."""
        return (await self._store.delete(piece_ids)).object_ids

    async def scan(self, owned: Owned) -> int:
        """Set aside bytes that no row names (`BucketBytes.scan`)."""
        return await self._orphans.turn(owned)

    async def _open_keys(
        self, account_id: str, pieces: Sequence[StoredPiece], looked: Looked
    ) -> list[DataKey | None]:
        assert isinstance(looked, _Reading)
        sealed = [piece for piece in pieces if piece.encoding != PLAIN]
        if not sealed or looked.keys is None:
            return [None] * len(pieces)
        with _translated():
            opened = await self._sealing.keys.open_looked_at(
                account_id, looked.keys, [_wrap(piece) for piece in sealed]
            )
        keys = {piece.id: key for piece, key in zip(sealed, opened, strict=True)}
        return [keys.get(piece.id) for piece in pieces]


class _Seal(NamedTuple):
    kms_key_id: str
    data_key: DataKey
    wrapped: bytes


class _StagedPiece:
    """A new piece: kept in memory as long as it may become inline."""

    def __init__(
        self,
        store: FilesystemStore,
        piece_id: str,
        staged: Staged,
        seal: _Seal | None,
        inline_bytes: int,
    ) -> None:
        self._store = store
        self._piece_id = piece_id
        self._staged = staged
        self._seal = seal
        self._inline_bytes = inline_bytes
        self._few: bytearray | None = bytearray()
        """The bytes, or None if they are in the store."""
        self._is_committed = False

    def write(self, view: memoryview, /) -> None:
        """Append bytes (`StagedPiece.write`)."""
        if self._few is None:
            self._staged.write(view)
            return
        if len(self._few) + len(view) <= self._inline_bytes:
            self._few += view
            return
        few, self._few = self._few, None
        if few:
            self._staged.write(memoryview(few))
        self._staged.write(view)

    def finish(self) -> StoredPiece:
        """Make the bytes durable, or seal them (`StagedPiece.finish`)."""
        if self._few is not None:
            data = bytes(self._few)
            key = self._seal and self._seal.data_key
            return self._recorded(store_inline(data, digest_of(data), self._piece_id, key))
        stored = self._staged.commit(None)
        self._is_committed = True
        return self._recorded(stored)

    async def discard(self) -> None:
        """Delete the bytes (`StagedPiece.discard`)."""
        if self._is_committed:
            await self._store.remove_duplicate(self._piece_id)
        else:
            await self._staged.discard()

    async def aclose(self) -> None:
        """End the hold (`StagedPiece.aclose`)."""
        await self._staged.aclose()

    def _recorded(self, stored: Stored) -> StoredPiece:
        return StoredPiece(
            stored.object_id,
            stored.size,
            stored.stored_size,
            stored.digest.partition(":")[2],
            stored.encoding,
            stored.checksum,
            stored.body,
            self._seal and self._seal.kms_key_id,
            self._seal and self._seal.wrapped,
        )


def _wrap(piece: StoredPiece) -> WrappedKey:
    assert piece.kms_key_id is not None
    assert piece.wrapped is not None
    return WrappedKey(piece.kms_key_id, piece.wrapped, piece.id)


def _usable(key: Key | None) -> Key:
    if key is None or key.state == "deleted":
        raise storage_errors.KmsKeyDeleted
    if key.state != "enabled":
        raise storage_errors.KmsKeyDisabled
    return key


@contextmanager
def _translated() -> Iterator[None]:
    """Raise the errors of buckets for those of the registry."""
    try:
        yield
    except errors.KmsKeyDeleted:
        raise storage_errors.KmsKeyDeleted from None
    except errors.KmsKeyDisabled:
        raise storage_errors.KmsKeyDisabled from None
    except WrapBroken:
        raise storage_errors.BytesDamaged from None

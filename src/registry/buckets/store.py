"""Store the bytes of buckets like those of blobs, and find bytes without a row.

Each piece is an object of the store, sealed like a blob, under a data key that is bound to the
account and the piece. Small pieces are inline: their row has the bytes.

Orphans are found by the same code as for blobs (`registry.gc.orphans.Tenant`): bytes that no writer
holds and that have no row are set aside, and deleted some days later. Nothing is done if the
database is older than the bytes. If too many bytes seem to have no row, the rest of the turn is
skipped.
"""

# ruff: noqa: D102 - methods without a docstring are documented in `cloudcore.storage.needs`

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from cloudcore.clock import Clock
from cloudcore.db.base import Connection
from cloudcore.kms.key import Key
from cloudcore.kms.rows import KEY_ROWS, bindable_key, find_platform_key
from cloudcore.kms.vault import UsableKeys
from cloudcore.objects.stored_rows import Owned
from cloudcore.objects.wraps import (
    KeyDeleted,
    KeyDisabled,
    Rewrapped,
    WrapBroken,
    WrappedKey,
    rewrap,
)
from cloudcore.resource_references import Authorize, Scope
from cloudcore.storage.errors import BytesDamaged
from cloudcore.storage.needs import SHREDDED, BucketBytes, BucketKeys, StoredPiece
from registry import errors
from registry.blobstore.base import PLAIN, DataKey, ObjectDamaged, ObjectUnknown
from registry.blobstore.opening import FileStore
from registry.blobstore.store import BlobStore
from registry.buckets.pieces import OpenPieces, StagedPiece, open_piece
from registry.gc.orphans import RECENT, SETTLED, FoundOrphans, Tenant, begun_at, due_places
from registry.metadata.blobs.wraps import hold_enabled
from registry.services.blobs.sealing import key_of
from registry.services.blobs.writing_keys import Seal
from registry.services.data_keys import DataKeys

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class BucketOrphans:
    """The orphan scans of one process: each turn scans staged bytes and one partition.

    The first turn also scans recent bytes of all partitions, for orphans of a process that died
    just before this one began. `is_right_database` returns False if the bytes do not belong to this
    database.
    """

    store: BlobStore
    clock: Clock
    kept: int
    """Microseconds between setting an orphan aside and deleting it."""
    is_right_database: Callable[[], Awaitable[bool]]
    is_first: bool = True

    async def turn(self, owned: Owned) -> int:
        """Scan, unless another process is scanning; return the number of orphans set aside."""
        what, now = "stored pieces of buckets", self.clock()
        tenant = Tenant(
            what, self.store, self.store, self.clock, owned, self.is_right_database, self.kept
        )
        async with self.store.scan_alone() as is_alone:
            if not is_alone or not await self.is_right_database():
                return 0
            await tenant.settle_orphans()
            moved = 0
            for places, since in due_places(
                self.store, now, now - RECENT if self.is_first else None
            ):
                found = await self._find(tenant, places, since)
                if not found.is_credible:
                    _log.error(
                        "%d of %d %s belong to no row; none is set aside. Is this the database of"
                        " these bytes?",
                        len(found.orphans),
                        found.files,
                        what,
                    )
                    break
                moved += sum([await tenant.set_aside(each) for each in found.orphans])
            else:
                self.is_first = False
        if moved:
            _log.warning("set aside %d %s that belonged to no row", moved, what)
        return moved

    async def _find(self, tenant: Tenant, places: Sequence[str], since: int) -> FoundOrphans:
        """Find orphans in these places, among bytes begun at `since` or later (0 means all)."""
        files, orphans = 0, list[str]()
        for place in places:
            count, unowned = await tenant.find(place, since)
            files += count
            orphans += [each for each in unowned if begun_at(each) + SETTLED <= self.clock()]
        return FoundOrphans(files, files - len(orphans), orphans)


class Sealing(NamedTuple):
    """Whether and how new pieces are encrypted, and which pieces are inline."""

    keys: DataKeys
    seals: bool
    """False if new pieces are stored plain."""
    inline_bytes: int
    """Maximum bytes of an inline piece."""


@dataclass(eq=False)
class BlobBucketBytes(BucketBytes):
    """The bytes of all buckets, in one blob store."""

    store: FileStore
    sealing: Sealing
    orphans: BucketOrphans
    new_id: Callable[[], str]

    @property
    def seals(self) -> bool:
        return self.sealing.seals

    def key_to_write(
        self, tx: Connection, account_id: str, kms_key_id: str | None
    ) -> UsableKeys | None:
        if not self.sealing.seals:
            return None
        key = find_key(tx, account_id, kms_key_id)
        if key is None or key.state == "deleted":
            raise KeyDeleted
        if key.state != "enabled":
            raise KeyDisabled
        return self.sealing.keys.usable_version(tx, account_id, key.id, key.current_version)

    def keys_to_read(
        self, tx: Connection, account_id: str, pieces: Sequence[StoredPiece]
    ) -> UsableKeys:
        if any(piece.encoding == SHREDDED for piece in pieces):
            raise KeyDeleted
        with _translated():
            wraps = [each for piece in pieces for each in piece.wraps]
            return self.sealing.keys.usable_for(tx, account_id, wraps)

    async def stage(self, account_id: str, usable: object) -> StagedPiece:
        piece_id = self.new_id()
        seal = None
        if isinstance(usable, UsableKeys):
            data_key = self.sealing.keys.new(account_id)
            with _translated():
                (wrapped,) = await self.sealing.keys.wrap_under(usable, [(piece_id, data_key)])
            seal = Seal(usable.refs[0].key_id, data_key, wrapped)
        staged = await self.store.stage(piece_id, key_of(seal), is_fresh=True)
        return StagedPiece(self.store, piece_id, staged, seal, self.sealing.inline_bytes)

    async def open(
        self,
        account_id: str,
        pieces: Sequence[StoredPiece],
        usable: object,
        start: int,
        stop: int,
    ) -> OpenPieces:
        keys = await self._open_keys(account_id, pieces, usable)
        try:
            first = await open_piece(self.store, pieces[0], keys[0])
        except (ObjectUnknown, ObjectDamaged):
            raise BytesDamaged from None
        return OpenPieces(self.store, pieces, keys, first, start, stop)

    async def rewrap(
        self, account_id: str, kms_key_id: str, wraps: Sequence[Sequence[WrappedKey]], /
    ) -> Rewrapped:
        with _translated():
            return await rewrap(self.sealing.keys, account_id, kms_key_id, wraps)

    def hold_keys(self, tx: Connection, account_id: str, kms_key_ids: Collection[str]) -> bool:
        return hold_enabled(tx, account_id, kms_key_ids)

    async def delete(self, piece_ids: Sequence[str]) -> Sequence[str]:
        return (await self.store.delete(piece_ids)).object_ids

    async def scan(self, owned: Owned) -> int:
        return await self.orphans.turn(owned)

    async def _open_keys(
        self, account_id: str, pieces: Sequence[StoredPiece], usable: object
    ) -> list[DataKey | None]:
        """Return the data key of each piece; None for plain pieces.

        Raise `BytesDamaged` if the row of a sealed piece has no wrapped key, so that its encrypted
        bytes are never sent.
        """
        assert isinstance(usable, UsableKeys)
        if any(piece.encoding != PLAIN and not piece.wraps for piece in pieces):
            raise BytesDamaged
        wraps = [each for piece in pieces for each in piece.wraps]
        with _translated():
            opened = await self.sealing.keys.open_under(account_id, usable, wraps)
        keys = {wrap.stored_id: key for wrap, key in zip(wraps, opened, strict=True)}
        return [keys.get(piece.id) for piece in pieces]


@dataclass(eq=False)
class KmsBucketKeys(BucketKeys):
    """The KMS keys that buckets can be bound to: the keys of the accounts in one region."""

    region: str

    def resolve(self, tx: Connection, account_id: str, value: str, authorize: Authorize) -> Key:
        return bindable_key(tx, Scope(account_id, self.region), value, authorize)

    def describe(self, tx: Connection, account_id: str, key_id: str | None) -> Key | None:
        return find_key(tx, account_id, key_id)


def find_key(tx: Connection, account_id: str, key_id: str | None) -> Key | None:
    """Return the KMS key with this id, or for None the platform key (`BucketKeys.describe`)."""
    if key_id is None:
        return find_platform_key(tx, account_id)
    return KEY_ROWS.find(tx, account_id, key_id)


@contextmanager
def _translated() -> Iterator[None]:
    """Turn errors of the registry in the block into errors of buckets."""
    try:
        yield
    except errors.KmsKeyDeleted:
        raise KeyDeleted from None
    except errors.KmsKeyDisabled:
        raise KeyDisabled from None
    except WrapBroken:
        raise BytesDamaged from None

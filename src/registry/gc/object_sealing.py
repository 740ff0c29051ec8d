"""Seal one plain object: encrypt a copy of its bytes, then switch the object to the copy.

The new bytes have a new id and a new data key, which is wrapped under the KMS key of each
repository that has the object. They are verified and durable before one transaction switches the
object to them, writes the wraps, and moves the old bytes to the quarantine. So a process that dies
has changed nothing or everything; the orphan scan finds new bytes without a row. A reader that has
the old bytes open can finish.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum
from typing import Final

from cloudcore.db.base import Connection
from cloudcore.objects.stored_rows import ObjectRow
from registry.blobstore.base import DataKey, ObjectDamaged, ObjectUnknown, OpenObject, Stored
from registry.blobstore.inline import store_inline
from registry.blobstore.store import BlobStore, Staged
from registry.errors import DigestMismatch, KmsKeyDeleted, KmsKeyDisabled, StoreUnavailable
from registry.gc.object_check import BLOBS, FoundDamage, ObjectCheck, Pace
from registry.metadata.blobs.damage import switch_bytes
from registry.metadata.blobs.inline import add_body
from registry.metadata.blobs.wraps import put_wrap, seal_uses
from registry.metadata.collector import plain_objects
from registry.metadata.encryption_bindings import SharedKey
from registry.oci.digest import Digest
from registry.services.blobs.recording import new_object
from registry.services.context import ServiceContext
from registry.services.data_keys import DataKeys

_TRIES: Final = 5
"""Maximum transactions for one object; each but the first follows a change of its KMS keys."""


class Outcome(Enum):
    """The result of sealing an object."""

    SEALED = "sealed"
    DAMAGED = "damaged"
    KEY_UNUSABLE = "key not usable"
    """A KMS key that the object needs is disabled or deleted, or its deletion is pending."""
    UNUSED = "not used"
    """No repository has the object; the collector removes it."""
    CHANGED = "changed meanwhile"
    """The object was pushed, sealed or deleted meanwhile, or its KMS keys keep changing."""


class _SourceFailed(Exception):
    """The plain bytes cannot be read, or do not match their digest."""


class _KeysChanged(Exception):
    """An object now needs KMS keys under which its data key was not wrapped."""


@dataclass(frozen=True, slots=True)
class Sealer:
    """Seals objects at a pace; marks damaged objects and passes them to `found`."""

    ctx: ServiceContext
    data_keys: DataKeys
    store: BlobStore
    pace: Pace
    found: Callable[[FoundDamage], None]

    async def seal(self, row: ObjectRow) -> Outcome:
        """Seal a plain object, if possible; return the outcome.

        Raises:
            StoreUnavailable: there is no room for the copy, or the store failed.
            Unavailable: the database failed, or the provider of a KMS key is unavailable.
            ReadingStopped: `Pace.stop` was called.

        """
        keys = await self._needed(row)
        if (obstacle := _obstacle(keys)) is not None:
            return obstacle
        data_key = self.data_keys.new(row.account_id)
        try:
            if row.is_inline:  # it stays inline
                digest, new_id = Digest(row.digest), self.ctx.new_id()
                stored = store_inline(row.body or b"", digest, new_id, data_key)
                return await self._switch(row, stored, data_key, keys)
            return await self._seal_file(row, data_key, keys)
        except (_SourceFailed, DigestMismatch):
            return await self._report(row)

    async def _seal_file(
        self, row: ObjectRow, data_key: DataKey, keys: Sequence[SharedKey]
    ) -> Outcome:
        staged = await self.store.stage(self.ctx.new_id(), data_key)
        try:
            try:
                stored = await self._copy(row, staged)
            except BaseException:
                await staged.discard()
                raise
            outcome = await self._switch(row, stored, data_key, keys)
            if outcome is not Outcome.SEALED:
                await self.store.remove_duplicate(stored.object_id)
            return outcome
        finally:
            await staged.aclose()

    async def _needed(self, row: ObjectRow) -> list[SharedKey]:
        return await self.ctx.database.read(plain_objects.sealing_keys, row.account_id, row.id)

    async def _copy(self, row: ObjectRow, staged: Staged) -> Stored:
        """Make the sealed copy, verified and durable.

        Raise `_SourceFailed` if the plain bytes are absent, damaged or unreadable.
        """
        try:
            source = await self._open(row)
            async with aclosing(source):
                return await self.pace.in_thread(_copy, source.chunks(), staged, row, self.pace)
        except (ObjectUnknown, ObjectDamaged, DigestMismatch) as error:
            raise _SourceFailed from error

    async def _switch(
        self, row: ObjectRow, stored: Stored, data_key: DataKey, keys: Sequence[SharedKey]
    ) -> Outcome:
        """Switch the object to its sealed copy; any outcome but `SEALED` means no change."""
        wraps: dict[str, bytes] = {}
        for _ in range(_TRIES):
            if (obstacle := _obstacle(keys)) is not None:
                return obstacle
            try:
                for key_id in {key.kms_key_id for key in keys} - wraps.keys():
                    wraps[key_id] = await self.data_keys.wrap(
                        row.account_id, key_id, stored.object_id, data_key
                    )
            except (KmsKeyDeleted, KmsKeyDisabled):
                return Outcome.KEY_UNUSABLE
            ids = self.ctx.new_id(), self.ctx.clock()
            try:
                is_sealed = await self.ctx.database.write(_switch, row, stored, wraps, *ids)
            except _KeysChanged:
                keys = await self._needed(row)
                continue
            return Outcome.SEALED if is_sealed else Outcome.CHANGED
        return Outcome.CHANGED

    async def _open(self, row: ObjectRow) -> OpenObject:
        try:
            return await self.store.open_stored(row.stored_id, row.stored_size)
        except StoreUnavailable as error:
            raise _SourceFailed from error

    async def _report(self, row: ObjectRow) -> Outcome:
        """Check the plain bytes as the scrub does, which marks and reports damage."""
        ctx = self.ctx
        check = ObjectCheck(ctx.database, self.store, ctx.clock, BLOBS, self.found, pace=self.pace)
        await check.run(_one_row(row), readers=1)
        return Outcome.DAMAGED


def _obstacle(keys: Sequence[SharedKey]) -> Outcome | None:
    if not keys:
        return Outcome.UNUSED
    is_usable = all(key.state == "enabled" for key in keys)
    return None if is_usable else Outcome.KEY_UNUSABLE


async def _one_row(row: ObjectRow) -> AsyncIterator[ObjectRow]:
    yield row


def _copy(chunks: Iterator[memoryview], staged: Staged, row: ObjectRow, pace: Pace) -> Stored:
    """Write plain bytes sealed, and verify and flush the copy. Blocks.

    Raises:
        DigestMismatch: the bytes do not match the digest.
        StoreUnavailable: the copy cannot be written.
        _SourceFailed: the plain bytes cannot be read.
        ReadingStopped: `Pace.stop` was called.

    """
    while (view := _next(chunks)) is not None:
        staged.write(view)
        pace.spend(len(view))
    return staged.commit(Digest(row.digest))


def _next(chunks: Iterator[memoryview]) -> memoryview | None:
    try:
        return next(chunks, None)
    except StoreUnavailable as error:
        raise _SourceFailed from error


def _switch(
    tx: Connection,
    row: ObjectRow,
    stored: Stored,
    wraps: dict[str, bytes],
    quarantined_id: str,
    now: int,
) -> bool:
    """Write all rows of the switch; return False if the object was deleted or has other bytes.

    Raise `_KeysChanged` if `wraps` lacks a KMS key that the object needs, or such a key is no
    longer enabled, or no repository has the object.
    """
    new = new_object(stored)._replace(id=row.id)
    if not switch_bytes(tx, row.account_id, row.stored_id, new, quarantined_id, now):
        return False
    if stored.body is not None:
        add_body(tx, stored.object_id, stored.body)
    needed = plain_objects.sealing_keys(tx, row.account_id, row.id)
    if not needed:
        raise _KeysChanged
    for key in needed:
        wrapped = wraps.get(key.kms_key_id)
        if wrapped is None or not put_wrap(tx, row.account_id, row.id, key.kms_key_id, wrapped):
            raise _KeysChanged
        seal_uses(tx, row.account_id, row.id, key.repository_ids, key.kms_key_id)
    return True

"""Data keys of sealed blobs: erase wraps under deleted KMS keys, and check all other wraps.

If the last wrap of a blob's data key is erased, the blob is *shredded*: the next collection removes
its bytes. Other blobs, sizes and manifests stay unchanged. The check verifies that links have the
wraps they need, and that the data keys in these wraps decrypt the bytes.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cloudcore.db.base import Database
from cloudcore.errors import Unavailable
from cloudcore.kms.providers import MaterialBroken
from cloudcore.objects.wraps import WrapBroken, WrappedKey
from registry.blobstore.base import DataKey, ObjectDamaged, ObjectUnknown
from registry.blobstore.inline import open_inline
from registry.blobstore.store import BlobReader
from registry.errors import KmsKeyDeleted, KmsKeyDisabled, StoreUnavailable
from registry.metadata.blobs.inline import read_body
from registry.metadata.collector.erasure import (
    DeletedKey,
    erase_quarantined_wraps,
    erase_wraps,
    keys_to_erase,
)
from registry.metadata.collector.wrap_audit import (
    ObjectFault,
    StoredWrap,
    is_wrap,
    key_faults,
    stored_wraps,
)
from registry.services.context import ServiceContext
from registry.services.data_keys import DataKeys

_KEYS: Final = 100
_BATCH: Final = 500
"""Objects per transaction; pushes of the same blobs wait for the transaction."""
_LOGGED_EVERY: Final = 20
"""Batches between two lines in the log."""
_REST: Final = 2
"""Pause after a batch, as a multiple of its duration: on SQLite, pushes need the same writer."""

_log = logging.getLogger(__name__)


async def shred_deleted_keys(ctx: ServiceContext) -> int:
    """Erase the wraps under deleted KMS keys; return the number of blobs that lost a wrap.

    The next turn, in any process, continues an interrupted one.
    """
    erased = 0
    after = ""
    while keys := await ctx.database.read(keys_to_erase, after, _KEYS):
        for key in keys:
            erased += await _shred(ctx, key)
        after = keys[-1].id
    return erased


async def _shred(ctx: ServiceContext, key: DeletedKey) -> int:
    blobs = shredded = shredded_bytes = batches = 0
    while True:
        begun = time.monotonic()
        done = await ctx.database.write(erase_wraps, key, _BATCH)
        if not done.objects:
            break
        blobs += done.objects
        shredded += done.shredded
        shredded_bytes += done.shredded_bytes
        batches += 1
        if batches % _LOGGED_EVERY == 0:
            _log.info("shredding the blobs of the deleted key %s: %d so far", key.id, blobs)
        await asyncio.sleep(_REST * (time.monotonic() - begun))
    while await ctx.database.write(erase_quarantined_wraps, key, _BATCH):
        pass
    _log.warning(
        "the deleted key %s opens no blob any more: it had %d, of which %d (%d bytes) had no other"
        " key and are shredded",
        key.id,
        blobs,
        shredded,
        shredded_bytes,
    )
    return blobs


_MOST: Final = 500
_PAGE: Final = 200
_MOST_AWAY: Final = 10
"""Unavailable KMS keys after which the check ends: each may take seconds."""


class KeyFault(NamedTuple):
    """A blob whose data keys are inconsistent with its links or bytes."""

    digest: str
    problem: str


async def find_key_faults(database: Database) -> list[KeyFault]:
    """Return blobs whose links, wraps and objects are inconsistent; up to 500 of each kind.

    Only faults found in two reads are returned, since a push may have changed the rows meanwhile.
    """
    found = await database.read(key_faults, _MOST)
    if found:
        found &= await database.read(key_faults, _MOST)
    return sorted(KeyFault(fault.digest, _problem_of(problem, fault)) for problem, fault in found)


def _problem_of(problem: str, fault: ObjectFault) -> str:
    key = "" if fault.kms_key_id is None else f" (KMS key {fault.kms_key_id})"
    return f"object {fault.object_id}: {problem}{key}"


@dataclass
class WrapCheck:
    """A check that wraps under enabled KMS keys open, and that their data keys fit the bytes."""

    database: Database
    reader: BlobReader
    data_keys: DataKeys
    wrap_count: int = field(default=0, init=False)
    untried: dict[str, str] = field(default_factory=dict, init=False)
    """Maps the ids of KMS keys to the reason why data keys under them were not tried."""
    _broken: dict[str, KeyFault] = field(default_factory=dict, init=False)
    """The KMS keys in `untried` whose key material cannot be opened, with the first blob found."""
    _first: tuple[str, DataKey] | None = field(default=None, init=False)
    """(object id, data key) of the last object, from its first wrap; the others must match it."""

    async def run(self) -> AsyncIterator[KeyFault]:
        """Yield the faults; afterwards `untried` has the KMS keys that were unavailable."""
        after = ("", "")
        while page := await self.database.read(stored_wraps, after, _PAGE):
            for wrap in page:
                problem = await self._try(wrap)
                if problem is not None and await self.database.read(is_wrap, wrap):
                    problem_text = f"its data key under the KMS key {wrap.kms_key_id} {problem}"
                    yield KeyFault(wrap.digest, problem_text)
            after = page[-1].object_id, page[-1].kms_key_id
        if self.wrap_count:  # other key material has opened, so the root key is the right one
            for kms_key_id, fault in self._broken.items():
                del self.untried[kms_key_id]
                yield fault

    async def _try(self, wrap: StoredWrap) -> str | None:
        """Return the fault of a wrap, or None. Skip wraps under disabled or deleted KMS keys.

        If the KMS key is unavailable, add it to `untried`.
        """
        is_over = len(self.untried) - len(self._broken) >= _MOST_AWAY
        if is_over or wrap.kms_key_id in self.untried:
            return None
        try:
            data_key = await self._open(wrap)
        except (KmsKeyDisabled, KmsKeyDeleted):
            return None
        except Unavailable as error:
            self._note_untried(wrap, error)
            return None
        except WrapBroken:
            self.wrap_count += 1
            return "does not open"
        self.wrap_count += 1
        first = self._first
        if first is not None and first[0] == wrap.object_id:
            is_same = hmac.compare_digest(data_key.plaintext, first[1].plaintext)
            return None if is_same else "is another one than under its other keys"
        self._first = wrap.object_id, data_key
        return await self._open_bytes(wrap, data_key)

    def _note_untried(self, wrap: StoredWrap, error: Unavailable) -> None:
        self.untried[wrap.kms_key_id] = error.message
        if isinstance(error, MaterialBroken):
            problem_text = f"the material of its KMS key {wrap.kms_key_id} does not open"
            self._broken[wrap.kms_key_id] = KeyFault(wrap.digest, problem_text)

    async def _open(self, wrap: StoredWrap) -> DataKey:
        wrapped = WrappedKey(wrap.kms_key_id, wrap.wrapped_data_key, wrap.stored_id)
        return (await self.data_keys.open_all(wrap.account_id, [wrapped]))[0]

    async def _open_bytes(self, wrap: StoredWrap, data_key: DataKey) -> str | None:
        """Return why the header of the bytes does not fit this data key, or None if it does.

        Bytes that are absent or marked as damaged are skipped: other checks report them.
        """
        if wrap.is_damaged:
            return None
        try:
            if wrap.is_inline:
                body = await self.database.read(read_body, wrap.stored_id)
                open_inline(body, wrap.stored_id, wrap.size, data_key)
            else:
                opened = await self.reader.open(wrap.stored_id, wrap.size, data_key=data_key)
                async with aclosing(opened):
                    pass
        except ObjectDamaged as error:
            return f"opens, but not the bytes: {error}"
        except (ObjectUnknown, StoreUnavailable):
            return None
        return None

"""Delete abandoned uploads, and the bytes of deleted objects."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from cloudcore.clock import MICROSECONDS
from cloudcore.db.rows import deletion
from cloudcore.storage import multipart, upload_rows
from cloudcore.storage.needs import StorageNeeds
from cloudcore.storage.pieces import keys, rows
from cloudcore.storage.pieces.rows import Condemned
from cloudcore.storage.tables import storage_uploads

ABORT_SECONDS: Final = 3600
DELETE_SECONDS: Final = 60
SCAN_SECONDS: Final = 300
CONDEMNED_FOR: Final = 3600 * MICROSECONDS
"""Microseconds between condemning a piece and deleting its bytes, so that readers can finish."""
_PAGE: Final = 200

_log = logging.getLogger(__name__)

_u = storage_uploads.c
forget_completed: Final = deletion(
    _u.ended_at, _u.ended_at.is_not(None), kept_seconds=multipart.KEPT_SECONDS
)
"""Deletes a batch of rows of uploads that were completed `multipart.KEPT_SECONDS` ago."""


async def abort_abandoned(needs: StorageNeeds) -> None:
    """Abort open uploads that were begun more than `multipart.ABANDONED_SECONDS` ago."""
    before = needs.clock() - multipart.ABANDONED_SECONDS * MICROSECONDS
    while found := await needs.database.read(upload_rows.list_abandoned, before, _PAGE):
        for upload in found:
            await needs.database.write(multipart.abort_if_open, upload, needs.clock())


async def delete_condemned(needs: StorageNeeds) -> None:
    """Delete the bytes of pieces that were condemned an hour ago, and then their rows."""
    before = needs.clock() - CONDEMNED_FOR
    while found := await needs.database.read(rows.list_condemned, before, _PAGE):
        gone = await _delete(needs, found)
        if gone:
            await needs.database.write(rows.forget_condemned, gone)
        if len(gone) < len(found):
            return


async def shred_deleted_keys(needs: StorageNeeds) -> None:
    """Delete the bytes of pieces whose KMS key was deleted, and then the pieces' data keys.

    Nothing can open these bytes any more. Their objects stay, and can be deleted.
    """
    while found := await needs.database.read(keys.list_under_deleted_key, _PAGE):
        shredded = await _delete(needs, found)
        if shredded:
            await needs.database.write(keys.shred, shredded)
            _log.warning("shredded %d pieces of buckets, whose keys were deleted", len(shredded))
        if len(shredded) < len(found):
            return


async def _delete(needs: StorageNeeds, pieces: Sequence[Condemned]) -> list[str]:
    """Delete the bytes of pieces; return the ids for which this succeeded."""
    stored = [piece.id for piece in pieces if not piece.is_inline]
    gone = await needs.bytes.delete(stored) if stored else ()
    return [*gone, *(piece.id for piece in pieces if piece.is_inline)]


async def scan_bytes(needs: StorageNeeds) -> None:
    """Scan the next part of the store, and quarantine bytes that have no row."""
    await needs.bytes.scan(lambda ids: needs.database.read(rows.owned, ids))

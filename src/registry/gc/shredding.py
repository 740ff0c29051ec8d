"""Shred blobs: erase the data keys that deleted KMS keys have wrapped.

The bytes of a blob that no other key opens are removed by the next collection. Other blobs, sizes
and manifests stay as they are.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from registry.metadata.collector.erasure import (
    DeletedKey,
    erase_quarantined_wraps,
    erase_wraps,
    keys_to_erase,
)
from registry.services.context import ServiceContext

_KEYS: Final = 100
_BATCH: Final = 500
"""Objects of one transaction, which keeps pushes of the same blobs waiting."""
_LOGGED_EVERY: Final = 20
"""Batches between two lines of the log."""
_REST: Final = 2
"""Pause after a batch, as a multiple of its time: on SQLite, pushes need the same writer."""

_log = logging.getLogger(__name__)


async def shred_deleted_keys(ctx: ServiceContext) -> int:
    """Erase what deleted keys have wrapped; return of how many blobs.

    A turn that is interrupted is continued by the next one, in whatever process.
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

"""Abandoned upload sessions: idle past their time, they go with their bytes."""

from __future__ import annotations

from typing import Final

from registry.blobstore.base import ObjectUnknown, StageBusy, Staged
from registry.metadata.blobs import uploads
from registry.services.context import ServiceContext

_BATCH: Final = 100


async def discard_expired_uploads(ctx: ServiceContext) -> int:
    """End every session whose time is over and return how many there were.

    A session someone is writing to this moment is left alone: its time is being renewed. So is
    one that was renewed since it was listed, which is read under the hold on its bytes. The bytes
    go before the row: after a crash in between, the next run ends the session. Bytes that had
    become an object stay, without a row: a later state of the database may have them as a blob, so
    the orphan scan sets them aside instead.
    """
    discarded = 0
    while True:
        expired = await ctx.database.read(uploads.expired_uploads, ctx.clock(), _BATCH)
        ended = 0
        for upload_id in expired:
            ended += await _discard(ctx, upload_id)
        discarded += ended
        if ended < _BATCH:
            return discarded


async def _discard(ctx: ServiceContext, upload_id: str) -> bool:
    """End one session, unless it goes on after all."""
    staged: Staged | None = None
    try:
        staged = await ctx.writer.resume(upload_id)
    except StageBusy:
        return False
    except ObjectUnknown:
        pass  # nothing was ever received, or an earlier run died here
    try:
        is_over = await ctx.database.read(uploads.is_expired, upload_id, ctx.clock())
        if is_over:
            if staged is not None:
                await staged.discard()
            await ctx.database.write_relaxed(uploads.remove_upload, upload_id)
        return is_over
    finally:
        if staged is not None:
            await staged.aclose()

"""Purge expired upload sessions and their bytes."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from registry.blobstore.base import StageBusy
from registry.errors import StoreUnavailable
from registry.metadata.blobs import uploads
from registry.services.blobs.upload_ids import lowest_id
from registry.services.blobs.upload_sessions import ending_of
from registry.services.context import ServiceContext

_BATCH: Final = 100


async def discard_expired_uploads(ctx: ServiceContext) -> int:
    """End every expired session; return how many.

    Skip sessions that a request writes to: it will extend them. Take the lease first, so that a
    former holder cannot record anything. Delete the bytes before the row, so that after a crash the
    next run ends the session. Bytes that were already made an object stay without a row, since a
    later state of the database may have them as a blob; so do bytes that a former holder has open.
    The orphan scan sets both aside.

    Raises:
        StoreUnavailable: the store failed for some of them; all others were tried.

    """
    discarded = 0
    refusal: StoreUnavailable | None = None
    while True:
        expired = await ctx.database.read(uploads.expired_uploads, ctx.clock(), _BATCH)
        ended = 0
        for upload_id in expired:
            try:
                ended += await _discard(ctx, upload_id)
            except StoreUnavailable as error:
                refusal = error
        discarded += ended
        if ended < _BATCH:
            break
    if refusal is not None:
        raise refusal
    return discarded


async def forget_ended_uploads(ctx: ServiceContext) -> int:
    """Forget the ended sessions whose ids have expired; return how many."""
    before = lowest_id(ctx.clock() - ctx.limits.upload_idle)
    total = 0
    while forgotten := await ctx.database.write_relaxed(uploads.forget_ended, before, _BATCH):
        total += forgotten
    return total


async def _discard(ctx: ServiceContext, upload_id: str) -> bool:
    """End one session; return False if it is in use or has ended."""
    taken = await ctx.database.write_relaxed(ctx.leases.take_expired, upload_id, ctx.clock())
    if taken is None:
        return False
    if taken.body is None:
        with suppress(StageBusy):
            await ctx.writer.discard(taken.stage_id)
    ending = ending_of(ctx, upload_id, uploads.lease_of(taken))
    return await ctx.database.write_relaxed(uploads.remove_upload, ending, ctx.clock())

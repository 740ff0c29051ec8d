"""Abandoned upload sessions: idle past their time, they go with their bytes."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from registry.blobstore.base import StageBusy
from registry.metadata.blobs import uploads
from registry.services.context import ServiceContext

_BATCH: Final = 100


async def discard_expired_uploads(ctx: ServiceContext) -> int:
    """End every session whose time is over and return how many there were.

    A session that somebody writes to is left alone: its time is being renewed. The lease is taken
    first, so that one who comes late records nothing. The bytes go before the row: after a crash in
    between, the next run ends the session. Bytes that had become an object stay, without a row: a
    later state of the database may have them as a blob, so the orphan scan sets them aside instead.
    So it does with bytes that a holder without a lease still has open.
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
    taken = await ctx.database.write_relaxed(ctx.leases.take_expired, upload_id, ctx.clock())
    if taken is None:
        return False
    with suppress(StageBusy):
        await ctx.writer.discard(taken.stage_id)
    return await ctx.database.write_relaxed(uploads.remove_upload, uploads.lease_of(taken))

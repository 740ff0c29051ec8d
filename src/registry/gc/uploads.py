"""Abandoned upload sessions: idle past their time, they go with their bytes."""

from __future__ import annotations

import asyncio
from typing import Final

from registry.blobstore.base import StageBusy
from registry.metadata import uploads
from registry.services.context import Context

_BATCH: Final = 100


async def discard_expired_uploads(ctx: Context) -> int:
    """End every session whose time is over and return how many there were.

    The bytes go first: a crash in between leaves a row whose session is over anyway, and the next
    run ends it. A session someone is writing to this moment is left alone; its time is renewed.
    """
    discarded = 0
    while True:
        expired = await ctx.database.read(uploads.expired_uploads, ctx.clock(), _BATCH)
        ended = 0
        for upload_id in expired:
            try:
                await asyncio.to_thread(ctx.writer.discard, upload_id)
            except StageBusy:
                continue
            await ctx.database.write_relaxed(uploads.remove_upload, upload_id)
            ended += 1
        discarded += ended
        if ended < _BATCH:
            return discarded

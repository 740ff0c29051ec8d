"""Follow a fill of another worker: read what it stages, and feed the readers of this process."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import Final

from registry.blobstore.base import DataKey, ObjectUnknown, OpenObject, StagedDropped
from registry.errors import StoreUnavailable
from registry.metadata.blobs.uploads import FIRST_TOKEN, Upload
from registry.metadata.pull_through import fills
from registry.metadata.pull_through.fills import Fill
from registry.services.blobs.upload_leases import has_run_out
from registry.services.context import ServiceContext
from registry.services.pull_through.feed import Feed
from registry.services.pull_through.fill_source import Source
from registry.services.pull_through.staged_parts import Stage

_LOOK_SECONDS: Final = 0.02
"""Between looks for the first bytes; they take longer as time passes."""
_LONGEST_LOOK_SECONDS: Final = 0.1
_WATCH_SECONDS: Final = 0.5
"""Between looks whether the other worker is still there."""


def may_follow(source: Source, found: Fill) -> bool:
    """Return True if a fill is for the same repository, or its upstream is known to have the blob.

    Else the upstream of another repository would answer for this one's.
    """
    return source.is_known or found.upload.repository_id == source.repository_id


def is_free(ctx: ServiceContext, found: Fill) -> bool:
    """Return True if no worker fetches the blob now: it has let go, or has died."""
    upload = found.upload
    if ctx.leases.is_writing(upload.id):
        return False
    return ctx.leases.is_abandoned(upload) or has_run_out(upload, ctx.clock())


async def follow(ctx: ServiceContext, source: Source, feed: Feed) -> bool:
    """Feed readers what another worker fetches; return True once its bytes are found right.

    Return False if the other worker has ended in some way, or died.

    Raises:
        KmsKeyDeleted, KmsKeyDisabled, Unavailable: the staged bytes cannot be decrypted.
        StoreUnavailable: it cannot be read.

    """
    pause = _LOOK_SECONDS
    while True:
        found = await _find(ctx, source)
        if found is None:
            return False
        if found.size is not None and not _is_copied(found.upload):
            try:
                return await _feed(ctx, source, feed, found)
            except ObjectUnknown:  # nothing has been written yet
                pass
            except StagedDropped:
                return False
        await asyncio.sleep(pause)
        pause = min(pause * 1.2, _LONGEST_LOOK_SECONDS)


async def _find(ctx: ServiceContext, source: Source) -> Fill | None:
    """Return the fill, if another worker fetches it now, and may for this repository."""
    found = await ctx.database.read(fills.find_fill, source.account_id, source.key)
    if found is None or is_free(ctx, found) or not may_follow(source, found):
        return None
    return found


def _is_copied(upload: Upload) -> bool:
    """Return True while a worker that has taken the first one's fill over copies its bytes.

    The copy may have fewer of them, and who has read on would be cut off.
    """
    return upload.stage_id == upload.id and upload.lease_token != FIRST_TOKEN


async def _feed(ctx: ServiceContext, source: Source, feed: Feed, found: Fill) -> bool:
    upload = found.upload
    stage = Stage(upload.stage_id, await _open_key(ctx, upload))
    async with aclosing(await ctx.reader.open_staged(*stage)) as opened:
        # What was noted is there; who wants it reads it itself.
        feed.open(found.size, stage, upload.received_bytes)
        reading = asyncio.create_task(_read(opened, feed, upload.received_bytes))
        try:
            while not (await asyncio.wait((reading,), timeout=_WATCH_SECONDS))[0]:
                now = await _find(ctx, source)
                if now is not None and now.upload.stage_id == upload.stage_id:
                    continue
                # It has ended well, and the rest is being read; or it has not.
                if not await _is_done(reading, feed):
                    return False
            await reading
            return True
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError, StagedDropped, StoreUnavailable):
                await reading


async def _is_done(reading: asyncio.Task[None], feed: Feed) -> bool:
    """Wait for the rest of the bytes while they come; return False if none do any more."""
    before = None
    while feed.end != before:
        before = feed.end
        if (await asyncio.wait((reading,), timeout=_WATCH_SECONDS))[0]:
            return True
    return False


async def _read(opened: OpenObject, feed: Feed, offset: int) -> None:
    """Feed bytes as they grow, until they are an object: then their digest was found right."""
    async for part in opened.stream(offset):
        feed.append(part)
        offset += len(part)
        feed.note_staged(offset)


async def _open_key(ctx: ServiceContext, upload: Upload) -> DataKey | None:
    if upload.kms_key_id is None or upload.wrapped_data_key is None:
        return None
    if ctx.data_keys is None:
        raise StoreUnavailable("the blob is sealed, and this process has no keys")
    wrapped = upload.kms_key_id, upload.wrapped_data_key
    return await ctx.data_keys.open(upload.account_id, *wrapped, upload.stage_id)

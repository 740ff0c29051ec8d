"""The staged bytes of an upload session: opened in place or in a copy, and deleted.

A session's first bytes get a data key of their own, and so does each copy.
"""

from __future__ import annotations

from contextlib import suppress

from registry.blobstore.base import StageBusy, Staged
from registry.errors import StoreUnavailable
from registry.metadata.blobs.uploads import FIRST_TOKEN
from registry.services.blobs.sealing import Seal, key_of, new_seal, open_seal
from registry.services.blobs.small_uploads import received_bytes
from registry.services.blobs.upload_leases import UploadHold
from registry.services.blobs.upload_sessions import Session
from registry.services.context import ServiceContext


async def open_stage(ctx: ServiceContext, hold: UploadHold) -> Staged:
    """Open a session's staged bytes, in a copy if a former holder may still write to them.

    Raises:
        ObjectUnknown: the acknowledged bytes were lost.
        StageBusy: another writer has them open.
        KmsKeyDeleted, KmsKeyDisabled: the KMS key that seals them cannot be used.
        StoreUnavailable: the store failed.

    """
    if hold.upload.body is not None:
        return await _spill(ctx, hold)
    if hold.upload.stage_shared:
        return await _copy(ctx, hold)
    try:
        return await _open_in_place(ctx, hold)
    except StageBusy:  # the last writer has not closed them yet
        return await _copy(ctx, hold)


async def _open_in_place(ctx: ServiceContext, hold: UploadHold) -> Staged:
    upload = hold.upload
    if upload.received_bytes == 0:
        hold.seal = await new_stage_seal(ctx, hold)
        # The first holder finds nothing under the session's id. A later one may find bytes of an
        # earlier one that do not count; it resumes them and cuts them off.
        is_fresh = upload.lease_token == FIRST_TOKEN
        with suppress(StageBusy):
            return await ctx.writer.stage(
                upload.stage_id, key_of(hold.seal), upload.algorithm, is_fresh=is_fresh
            )
    else:
        hold.seal = await open_seal(ctx, upload, hold.keys)
    staged = await ctx.writer.resume(upload.stage_id)
    try:
        await staged.rewind(
            upload.received_bytes, upload.digests, upload.algorithm, data_key=key_of(hold.seal)
        )
    except BaseException:
        await staged.aclose()
        raise
    return staged


async def _copy(ctx: ServiceContext, hold: UploadHold) -> Staged:
    """Copy the acknowledged bytes to a new id, since a former holder may still write to them."""
    upload = hold.upload
    hold.stage_id = ctx.new_id()
    hold.seal = await new_stage_seal(ctx, hold)
    if upload.received_bytes == 0:
        return await ctx.writer.stage(hold.stage_id, key_of(hold.seal), upload.algorithm)
    return await ctx.writer.stage_copy(
        hold.stage_id,
        upload.stage_id,
        upload.received_bytes,
        data_key=key_of(hold.seal),
        source_key=key_of(await open_seal(ctx, upload, hold.keys)),
    )


async def _spill(ctx: ServiceContext, hold: UploadHold) -> Staged:
    """Begin to stage the bytes of a session that has had them in its row."""
    session = Session(hold.upload, is_written=True)
    hold.before = await received_bytes(ctx, session, hold.keys)
    hold.stage_id = ctx.new_id()
    hold.seal = await new_stage_seal(ctx, hold)
    key = key_of(hold.seal)
    return await ctx.writer.stage(hold.stage_id, key, hold.upload.algorithm, is_fresh=True)


async def new_stage_seal(ctx: ServiceContext, hold: UploadHold) -> Seal | None:
    """Return the seal for newly staged bytes, or None if they are stored plain."""
    writing = hold.keys.writing if hold.keys else None
    return await new_seal(ctx, hold.upload.account_id, writing, hold.stage_id)


async def discard_stage(staged: Staged) -> None:
    """Delete staged bytes that no row names; if the store fails, the orphan scan finds them."""
    with suppress(StoreUnavailable):
        await staged.discard()


async def drop_received(ctx: ServiceContext, hold: UploadHold) -> None:
    """Delete the bytes that the session had when the lease was taken; no row names them now.

    A holder that lost the lease may have them open, or may have made them an object, or the store
    fails. Then leave them to the orphan scan.
    """
    if hold.upload.lease_token == FIRST_TOKEN or hold.upload.body is not None:
        return  # nothing was staged before
    with suppress(StageBusy, StoreUnavailable):
        await ctx.writer.discard(hold.upload.stage_id)

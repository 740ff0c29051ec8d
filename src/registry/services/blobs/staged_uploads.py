"""Upload sessions with bytes staged in the store, written by the holder of the session's lease.

The row records what a session has received: the bytes are flushed before the row is committed, and
the row is committed before the response. Bytes beyond the row were never acknowledged; the next
writer cuts them off. Only the holder of a session's lease writes (`upload_leases`). It uses the row
as read when it took the lease, and each of its transactions checks the lease's token.

A new holder continues the staged bytes in place or in a copy. A session's first bytes and each copy
get their own data key.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import NamedTuple

from cloudcore.db.base import Connection, OutcomeUnknown
from cloudcore.errors import QuotaExceeded
from cloudcore.quotas.limits import QuotaUse
from registry.blobstore.base import ObjectUnknown, StageBusy, Stored
from registry.blobstore.store import Staged
from registry.errors import (
    DigestMismatch,
    KmsKeyDeleted,
    KmsKeyDisabled,
    NameUnknown,
    StoreUnavailable,
)
from registry.metadata.blobs import uploads
from registry.metadata.blobs.objects import has_object
from registry.metadata.blobs.uploads import FIRST_TOKEN, ReceivedBytes
from registry.metadata.quotas import check_bytes
from registry.oci.digest import Digest
from registry.oci.reference import Name
from registry.services.blobs import sealing
from registry.services.blobs.recording import NewBytes, drop_stored, record_new
from registry.services.blobs.small_uploads import open_received
from registry.services.blobs.upload_bodies import (
    Chunk,
    check_limit,
    check_offset,
    check_span,
    cut_short,
)
from registry.services.blobs.upload_ids import UploadSession, busy, unknown
from registry.services.blobs.upload_leases import UploadHold, UploadLeaseLost
from registry.services.blobs.upload_sessions import check_room, ending_of, lost_session
from registry.services.blobs.writing_keys import Seal
from registry.services.context import ServiceContext


class _Progress(NamedTuple):
    """A session after a chunk: its received bytes, their digests, and the object, if complete."""

    is_complete: bool
    received_bytes: int
    digests: Mapping[str, str]
    stored: Stored | None = None


async def stage_chunk(ctx: ServiceContext, name: Name, session: UploadSession, chunk: Chunk) -> int:
    """Append a chunk to a session's staged bytes; return how many bytes the session has received.

    Raise the errors of `registry.services.blobs.uploads.append_chunk`.
    """
    async with _held(ctx, name, session, chunk.declared_bytes) as hold:
        async with _opened(ctx, hold, chunk) as staged:
            move = _Move(ctx, hold, staged, chunk)

            def finish(is_complete: bool) -> _Progress:  # noqa: FBT001 - called by the body
                move.end(is_complete=is_complete)
                return _Progress(is_complete, staged.offset, staged.flush())

            progress = await chunk.body(move.take, finish)
        # The staged file is closed: the next writer may open it once the lease is released.
        await _advance(ctx, hold, progress)
    if not progress.is_complete:
        raise cut_short()
    return progress.received_bytes


async def finish_staged(
    ctx: ServiceContext, name: Name, session: UploadSession, expected: Digest, chunk: Chunk
) -> None:
    """Append the last chunk, if any, and make the staged bytes a blob of the repository.

    Raise the errors of `registry.services.blobs.uploads.finish_upload`.
    """
    async with _held(ctx, name, session, chunk.declared_bytes, expected) as hold:
        async with _opened(ctx, hold, chunk) as staged:
            move = _Move(ctx, hold, staged, chunk)

            def finish(is_complete: bool) -> _Progress:  # noqa: FBT001
                move.end(is_complete=is_complete)
                if not is_complete:
                    return _Progress(is_complete, staged.offset, staged.flush())
                return _Progress(is_complete, staged.offset, {}, staged.commit(expected))

            try:
                progress = await chunk.body(move.take, finish)
            except DigestMismatch:
                await end_staged(ctx, hold, staged)
                raise
            if progress.stored is not None:
                if not await record_staged(ctx, hold, progress.stored):
                    await drop_stored(ctx, progress.stored)
                return
        await _advance(ctx, hold, progress)
    raise cut_short()


async def cancel_staged(ctx: ServiceContext, name: Name, session: UploadSession) -> None:
    """End a session that has a row, and delete its bytes.

    Raise `UploadUnknown` if the session has ended, `UploadBusy` if another request writes to it.
    """
    upload_id = session.upload.id
    async with ctx.leases.hold(ctx, name, session) as hold:
        hold.is_over = True
        ending = ending_of(ctx, upload_id, hold.lease)
        if not await ctx.database.write(uploads.remove_upload, ending, ctx.clock()):
            raise unknown(upload_id)
        await drop_received(ctx, hold)


@asynccontextmanager
async def _held(
    ctx: ServiceContext,
    name: Name,
    session: UploadSession,
    adding: int | None,
    expected: Digest | None = None,
) -> AsyncIterator[UploadHold]:
    """Hold the lease of a session, with its keys; insert its row if there is none.

    `adding` is the number of bytes to come, and `expected` the blob's digest, each None if unknown.
    """
    upload, use = session.upload, session.use
    if not session.is_written:
        now = ctx.clock()
        place = upload.repository_id, upload.account_id
        use = await ctx.database.read(check_room, ctx, *place, now)
        # A new id for the bytes: stored ids sort by the time at which the bytes began to arrive.
        session = session._replace(upload=upload._replace(stage_id=ctx.new_id()))
    if use is not None and expected is not None:
        of = upload.account_id, expected, use
        use = await ctx.database.read(use_unless_there, *of)
    check_bytes(use, upload.received_bytes + (adding or 0))
    async with ctx.leases.hold(ctx, name, session, partial(sealing.find_upload_keys, ctx)) as hold:
        hold.use = use
        yield hold


def use_unless_there(
    tx: Connection, account_id: str, digest: Digest, use: QuotaUse
) -> QuotaUse | None:
    """Return `use`, or None if the account already has this blob, which then adds no bytes."""
    return None if has_object(tx, account_id, digest) else use


def limited(
    ctx: ServiceContext, staged: Staged, use: QuotaUse | None
) -> Callable[[memoryview], None]:
    """Return a sink that writes to `staged`; it raises `BlobTooLarge` or `QuotaExceeded`."""

    def sink(view: memoryview) -> None:
        check_limit(ctx, staged.offset + len(view))
        check_bytes(use, staged.offset + len(view))
        staged.write(view)

    return sink


class _Move:
    """Writes a chunk to staged bytes, after the bytes in the session's row, if any."""

    def __init__(self, ctx: ServiceContext, hold: UploadHold, staged: Staged, chunk: Chunk) -> None:
        self._staged = staged
        self._sink = limited(ctx, staged, hold.use)
        self._before = hold.before
        self._received_bytes = hold.upload.received_bytes
        self._span = chunk.span

    def take(self, view: memoryview) -> None:
        """Write the next bytes; raise `BlobTooLarge` or `QuotaExceeded` beyond a limit."""
        self._write_before()
        self._sink(view)

    def end(self, *, is_complete: bool) -> None:
        """Raise `SizeInvalid` if a complete chunk is not as long as its span."""
        self._write_before()
        if is_complete:
            check_span(self._span, self._staged.offset - self._received_bytes)

    def _write_before(self) -> None:
        before, self._before = self._before, b""
        if before:
            self._staged.write(memoryview(before))


@asynccontextmanager
async def _opened(ctx: ServiceContext, hold: UploadHold, chunk: Chunk) -> AsyncIterator[Staged]:
    """Open a session's staged bytes at the acknowledged offset, at which the chunk must begin."""
    upload = hold.upload
    check_offset(chunk.span, upload.received_bytes)
    check_limit(ctx, upload.received_bytes + (chunk.declared_bytes or 0))
    try:
        staged = await open_stage(ctx, hold)
    except ObjectUnknown:
        # The acknowledged bytes were lost (a flush failed): the upload must begin anew.
        await end_staged(ctx, hold)
        raise unknown(upload.id) from None
    except StageBusy:
        raise busy() from None
    async with aclosing(staged):
        try:
            yield staged
        except StageBusy:  # bytes that no row counts are staged there; the next holder resumes them
            raise busy() from None
        except BaseException:
            if hold.has_copy and not hold.is_over:  # no row names the copy
                await discard_stage(staged)
            raise


async def end_staged(ctx: ServiceContext, hold: UploadHold, staged: Staged | None = None) -> bool:
    """End a held session, then delete its bytes, unless a row may still name them.

    Return False if a row may still name them: the lease was lost.
    """
    hold.is_over = True
    ending = ending_of(ctx, hold.upload.id, hold.lease)
    is_ended = await ctx.database.write(uploads.remove_upload, ending, ctx.clock())
    if staged is not None and (is_ended or hold.has_copy):
        await discard_stage(staged)
    if is_ended:
        await drop_received(ctx, hold)
    return is_ended


async def _advance(ctx: ServiceContext, hold: UploadHold, progress: _Progress) -> None:
    """Write the received bytes to the session's row, and release the lease."""
    received = ReceivedBytes(
        progress.received_bytes, progress.digests, hold.stage_id, sealing.wrap_for_row(hold.seal)
    )

    async def advance() -> bool:
        expires_at = ctx.clock() + ctx.limits.upload_idle
        return await ctx.database.write(uploads.advance_upload, hold.lease, received, expires_at)

    hold.is_over = True
    may_be_named = False
    try:
        is_recorded = await advance()
    except OutcomeUnknown:
        may_be_named = True  # the row may name the copy, and a later holder may have it
        is_recorded = await advance()
    if not is_recorded:
        if hold.has_copy and not may_be_named:
            with suppress(StageBusy, StoreUnavailable):
                await ctx.writer.discard(hold.stage_id)
        raise await _lost(ctx, hold)
    if hold.has_copy:
        await drop_received(ctx, hold)


async def record_staged(
    ctx: ServiceContext, hold: UploadHold, stored: Stored, *, is_cached: bool = False
) -> bool:
    """Write the rows of a held session's blob, and end the session; see `NewBytes.is_cached`.

    Return False if the account has a good copy, so the caller must drop the bytes (`drop_stored`).

    Raises:
        UploadUnknown, UploadBusy: another request has the session now, or it has ended.
        OutcomeUnknown, KmsKeyDeleted, KmsKeyDisabled, NameUnknown, QuotaExceeded: see
            `record_new`; the session stays.

    """
    upload = hold.upload
    writing = hold.keys.writing if hold.keys else None
    seal = await sealing.seal_under(ctx, writing, hold.seal, stored.object_id)
    new = NewBytes(upload.repository_id, upload.account_id, stored, seal, is_cached)
    hold.is_over = True
    try:
        is_new = await record_new(ctx, new, ending_of(ctx, upload.id, hold.lease))
    except (OutcomeUnknown, KmsKeyDeleted, KmsKeyDisabled, NameUnknown, QuotaExceeded):
        hold.is_over = False
        raise
    except UploadLeaseLost:
        if hold.has_copy:
            await drop_stored(ctx, stored)
        raise await _lost(ctx, hold) from None
    if hold.has_copy:
        await drop_received(ctx, hold)
    return is_new


async def _lost(ctx: ServiceContext, hold: UploadHold) -> Exception:
    return await ctx.database.read(lost_session, ctx, hold.name, hold.upload.id, ctx.clock())


async def open_stage(ctx: ServiceContext, hold: UploadHold) -> Staged:
    """Open a session's staged bytes; copy them if an earlier holder may still write to them.

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
                upload.stage_id, sealing.key_of(hold.seal), upload.algorithm, is_fresh=is_fresh
            )
    else:
        hold.seal = await sealing.open_seal(ctx, upload, hold.keys)
    staged = await ctx.writer.resume(upload.stage_id)
    try:
        await staged.rewind(
            upload.received_bytes,
            upload.digests,
            upload.algorithm,
            data_key=sealing.key_of(hold.seal),
        )
    except BaseException:
        await staged.aclose()
        raise
    return staged


async def _copy(ctx: ServiceContext, hold: UploadHold) -> Staged:
    """Copy the acknowledged bytes under a new id: an earlier holder may write to the old ones."""
    upload = hold.upload
    hold.stage_id = ctx.new_id()
    hold.seal = await new_stage_seal(ctx, hold)
    if upload.received_bytes == 0:
        return await ctx.writer.stage(hold.stage_id, sealing.key_of(hold.seal), upload.algorithm)
    return await ctx.writer.stage_copy(
        hold.stage_id,
        upload.stage_id,
        upload.received_bytes,
        data_key=sealing.key_of(hold.seal),
        source_key=sealing.key_of(await sealing.open_seal(ctx, upload, hold.keys)),
    )


async def _spill(ctx: ServiceContext, hold: UploadHold) -> Staged:
    """Begin to stage a session's bytes, which so far are in its row."""
    session = UploadSession(hold.upload, is_written=True)
    hold.before, _ = await open_received(ctx, session, hold.keys)
    hold.stage_id = ctx.new_id()
    hold.seal = await new_stage_seal(ctx, hold)
    key = sealing.key_of(hold.seal)
    return await ctx.writer.stage(hold.stage_id, key, hold.upload.algorithm, is_fresh=True)


async def new_stage_seal(ctx: ServiceContext, hold: UploadHold) -> Seal | None:
    """Make the seal for newly staged bytes; return None if they are stored plain."""
    writing = hold.keys.writing if hold.keys else None
    return await sealing.new_seal(ctx, hold.upload.account_id, writing, hold.stage_id)


async def discard_stage(staged: Staged) -> None:
    """Delete staged bytes that no row names; if the store fails, the orphan scan finds them."""
    with suppress(StoreUnavailable):
        await staged.discard()


async def drop_received(ctx: ServiceContext, hold: UploadHold) -> None:
    """Delete the staged bytes that the session had when the lease was taken; no row names them now.

    The orphan scan deletes them later if an earlier holder still has them open or has made them an
    object, or if the store fails.
    """
    if hold.upload.lease_token == FIRST_TOKEN or hold.upload.body is not None:
        return  # nothing was staged before
    with suppress(StageBusy, StoreUnavailable):
        await ctx.writer.discard(hold.upload.stage_id)

"""Upload sessions: started, continued on any worker, committed through one door.

What a session has received is what its row says: the bytes are flushed before the row, the row
is committed before the answer. Bytes beyond the row were never acknowledged; the next writer cuts
them off. Only the holder of a session's lease writes (`upload_leases`); it goes by the row as it
was when it took the lease, and what it records names its token.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final, NamedTuple, Protocol, TypeVar

from cloudcore.db.base import Connection, OutcomeUnknown
from registry.blobstore.base import ObjectUnknown, StageBusy, Staged, Stored
from registry.errors import (
    BlobTooLarge,
    DigestMismatch,
    SizeInvalid,
    StoreUnavailable,
    TooManyUploads,
    UploadBusy,
    UploadOutOfOrder,
)
from registry.metadata.blobs import uploads
from registry.metadata.blobs.uploads import FIRST_TOKEN, Upload
from registry.metadata.repositories.live import Repository
from registry.oci.digest import Digest
from registry.oci.reference import Name
from registry.services.access import Rights
from registry.services.blobs.recording import record_blob
from registry.services.blobs.upload_leases import (
    UploadHold,
    UploadLeaseLost,
    busy,
    get_upload,
    unknown,
)
from registry.services.context import ServiceContext
from registry.services.repositories.names import repository_for_push
from registry.settings import Limits

T = TypeVar("T")

_RETRY_SECONDS: Final = 60
"""``Retry-After``, in seconds, where too many uploads are open."""


class Body(Protocol):
    """A request body: moved to a sink in a bulk thread, then finished there."""

    async def __call__(
        self, sink: Callable[[memoryview], None], finish: Callable[[bool], T], /
    ) -> T:
        """Move the body to `sink` and return what ``finish(arrived whole)`` returns."""
        ...


class Span(NamedTuple):
    """Where a chunk says it lies: its first byte and its length (``Content-Range``)."""

    first: int
    length: int


class Chunk(NamedTuple):
    """What a request brings: its body, and what it says of it beforehand."""

    body: Body
    declared_bytes: int | None
    """``Content-Length``; None when the body comes without one."""
    span: Span | None = None


class _Progress(NamedTuple):
    """What a chunk left behind."""

    is_complete: bool
    received_bytes: int
    digests: Mapping[str, str]
    stored: Stored | None = None


async def start_upload(
    ctx: ServiceContext, name: Name, rights: Rights, algorithm: str | None
) -> str:
    """Open an upload session and return its id (end-4a, end-4c).

    It takes several transactions: what may refuse is read before the one that writes.

    Raises:
        NameUnknown: there is no such repository, and none is made.
        TooManyUploads: the repository or its account has as many open as it may.

    """
    repository = await repository_for_push(ctx, name, rights)
    upload_id = ctx.new_id()
    now = ctx.clock()
    await ctx.database.read(_check_open_uploads, repository, now, ctx.limits)
    await ctx.database.write_relaxed(
        uploads.add_upload,
        upload_id,
        repository.id,
        repository.account_id,
        algorithm,
        now,
        now + ctx.limits.upload_idle,
    )
    return upload_id


def _check_open_uploads(tx: Connection, repository: Repository, now: int, limits: Limits) -> None:
    """Refuse one more session where too many are open.

    Read before the change, so that refusals cost the one writer nothing; concurrent requests may
    exceed the bound by a few.
    """
    most = limits.max_open_uploads_per_repository, limits.max_open_uploads
    full = uploads.find_full(tx, repository.id, repository.account_id, now, *most)
    if full is not None:
        raise TooManyUploads(
            f"the {full} has {most[full == 'account']} uploads open, and may have no more; finish"
            " some, cancel some, or wait until they expire",
            retry_after=_RETRY_SECONDS,
        )


async def append_chunk(ctx: ServiceContext, name: Name, upload_id: str, chunk: Chunk) -> int:
    """Append a chunk and return how many bytes the session has now (end-5).

    Raises:
        UploadUnknown, UploadBusy, UploadOutOfOrder, BlobTooLarge, StoreUnavailable.
        SizeInvalid: the body is not as long as `span` says, and nothing of it counts; or the
            client left in the middle, and what came stays and counts.

    """
    async with ctx.leases.hold(ctx.database, ctx.clock, name, upload_id) as hold:
        async with _opened(ctx, hold, chunk) as staged:

            def finish(is_complete: bool) -> _Progress:  # noqa: FBT001 - called by the body
                _check_length(staged, hold.upload, chunk.span, is_complete=is_complete)
                return _Progress(is_complete, staged.offset, staged.flush())

            progress = await chunk.body(_limited(ctx, staged), finish)
        # The bytes are let go: once the row is free, the next writer opens them.
        await _advance(ctx, hold, progress)
    if not progress.is_complete:
        raise _cut_short()
    return progress.received_bytes


async def finish_upload(
    ctx: ServiceContext, name: Name, upload_id: str, expected: Digest, chunk: Chunk
) -> None:
    """Append the last chunk, if any, and make the bytes a blob of the repository (end-6).

    Raises:
        DigestMismatch: the bytes hash to something else; the session is gone.
        SizeInvalid: the body ended early; what came stays, and the session lives.
        UploadUnknown, UploadBusy, UploadOutOfOrder, BlobTooLarge, StoreUnavailable.

    """
    async with ctx.leases.hold(ctx.database, ctx.clock, name, upload_id) as hold:
        async with _opened(ctx, hold, chunk) as staged:

            def finish(is_complete: bool) -> _Progress:  # noqa: FBT001
                _check_length(staged, hold.upload, chunk.span, is_complete=is_complete)
                if not is_complete:
                    return _Progress(is_complete, staged.offset, staged.flush())
                return _Progress(is_complete, staged.offset, {}, staged.commit(expected))

            try:
                progress = await chunk.body(_limited(ctx, staged), finish)
            except DigestMismatch:
                await _end(ctx, hold, staged)
                raise
            if progress.stored is not None:
                await _record(ctx, hold, progress.stored)
                return
        await _advance(ctx, hold, progress)
    raise _cut_short()


async def push_blob(
    ctx: ServiceContext, name: Name, rights: Rights, expected: Digest, chunk: Chunk
) -> None:
    """Take a whole blob in one request (end-4b).

    Raises:
        DigestMismatch, SizeInvalid, BlobTooLarge, NameUnknown, StoreUnavailable.

    """
    _check_limit(ctx, chunk.declared_bytes or 0)
    repository = await repository_for_push(ctx, name, rights)
    staged = await ctx.writer.stage(ctx.new_id(), None, expected.algorithm, is_fresh=True)
    async with aclosing(staged):
        sink = _limited(ctx, staged)

        def finish(is_complete: bool) -> Stored | None:  # noqa: FBT001
            if is_complete and chunk.span and chunk.span.length != staged.offset:
                raise _unlike_its_span()
            return staged.commit(expected) if is_complete else None

        try:
            stored = await chunk.body(sink, finish)
        except BaseException:
            await staged.discard()  # no session will ever resume them
            raise
        if stored is None:
            await staged.discard()
            raise _cut_short()
        await record_blob(ctx, repository.id, repository.account_id, stored)


async def cancel_upload(ctx: ServiceContext, name: Name, upload_id: str) -> None:
    """End a session and drop its bytes (end-14).

    Raises:
        UploadUnknown: it had ended, or was never here.
        UploadBusy: another request is writing to it.

    """
    async with ctx.leases.hold(ctx.database, ctx.clock, name, upload_id) as hold:
        hold.is_over = True
        if not await ctx.database.write(uploads.remove_upload, hold.lease):
            raise unknown(upload_id)
        with suppress(StageBusy):  # a holder without a lease; the orphan scan finds them
            await ctx.writer.discard(hold.upload.stage_id)


@asynccontextmanager
async def _opened(ctx: ServiceContext, hold: UploadHold, chunk: Chunk) -> AsyncIterator[Staged]:
    """Open the staged bytes of a session where the chunk goes on, at what is acknowledged."""
    upload = hold.upload
    if chunk.span is not None and chunk.span.first != upload.received_bytes:
        raise UploadOutOfOrder(upload.received_bytes)
    _check_limit(ctx, upload.received_bytes + (chunk.declared_bytes or 0))
    try:
        staged = await _open(ctx, hold)
    except ObjectUnknown:
        # A flush failed, and what the row counts was given up: the upload must begin anew.
        await _end(ctx, hold)
        raise unknown(upload.id) from None
    async with aclosing(staged):
        try:
            yield staged
        except StageBusy:  # the row is older than the bytes; the next holder resumes these
            raise busy() from None
        except BaseException:
            if hold.has_copy and not hold.is_over:  # no row will ever name it
                await staged.discard()
            raise


async def _open(ctx: ServiceContext, hold: UploadHold) -> Staged:
    """Open the bytes that the session has; nobody else will write where this holder does."""
    if hold.upload.stage_shared:
        return await _copy(ctx, hold)
    try:
        return await _open_in_place(ctx, hold.upload)
    except StageBusy:  # the last writer has not let go of them yet
        return await _copy(ctx, hold)


async def _open_in_place(ctx: ServiceContext, upload: Upload) -> Staged:
    if upload.received_bytes == 0:
        # The first holder finds nothing under the session's id. A later one may find bytes that an
        # earlier one left and that do not count; then it resumes them, and cuts them off.
        is_fresh = upload.lease_token == FIRST_TOKEN
        with suppress(StageBusy):
            return await ctx.writer.stage(
                upload.stage_id, None, upload.algorithm, is_fresh=is_fresh
            )
    staged = await ctx.writer.resume(upload.stage_id)
    try:
        received = upload.received_bytes
        await staged.rewind(received, upload.digests, upload.algorithm, data_key=None)
    except BaseException:
        await staged.aclose()
        raise
    return staged


async def _copy(ctx: ServiceContext, hold: UploadHold) -> Staged:
    """Go on in a copy, since somebody may still write to the bytes."""
    upload = hold.upload
    hold.stage_id = ctx.new_id()
    if upload.received_bytes == 0:
        return await ctx.writer.stage(hold.stage_id, None, upload.algorithm)
    return await ctx.writer.stage_copy(
        hold.stage_id, upload.stage_id, upload.received_bytes, data_key=None
    )


async def _end(ctx: ServiceContext, hold: UploadHold, staged: Staged | None = None) -> None:
    """End a session, then drop its bytes: those that a row names stay."""
    hold.is_over = True
    is_ended = await ctx.database.write(uploads.remove_upload, hold.lease)
    if staged is not None and (is_ended or hold.has_copy):
        await staged.discard()
    if is_ended:
        await _drop_received(ctx, hold)


async def _drop_received(ctx: ServiceContext, hold: UploadHold) -> None:
    """Drop the bytes that the session had when the lease was taken, where no row names them now.

    A holder that lost the lease may have them open, or may have made them an object. Then they stay
    for the orphan scan to find.
    """
    with suppress(StageBusy, StoreUnavailable):
        await ctx.writer.discard(hold.upload.stage_id)


async def _advance(ctx: ServiceContext, hold: UploadHold, progress: _Progress) -> None:
    """Record what was received, and release the lease."""

    async def advance() -> bool:
        return await ctx.database.write(
            uploads.advance_upload,
            hold.lease,
            progress.received_bytes,
            progress.digests,
            hold.stage_id,
            ctx.clock() + ctx.limits.upload_idle,
        )

    hold.is_over = True
    may_be_named = False
    try:
        is_recorded = await advance()
    except OutcomeUnknown:
        may_be_named = True  # by the row, if that was kept and others have come since
        is_recorded = await advance()
    if not is_recorded:
        if hold.has_copy and not may_be_named:
            with suppress(StageBusy, StoreUnavailable):
                await ctx.writer.discard(hold.stage_id)
        raise await ctx.database.read(_lost, hold, ctx.clock())
    if hold.has_copy:
        await _drop_received(ctx, hold)


async def _record(ctx: ServiceContext, hold: UploadHold, stored: Stored) -> None:
    """Record the blob in place of its session."""
    upload = hold.upload
    hold.is_over = True
    try:
        await record_blob(ctx, upload.repository_id, upload.account_id, stored, hold.lease)
    except OutcomeUnknown:
        hold.is_over = False
        raise
    except UploadLeaseLost:
        if hold.has_copy:
            await ctx.writer.remove_duplicate(stored.object_id)
        raise await ctx.database.read(_lost, hold, ctx.clock()) from None
    if hold.has_copy:
        await _drop_received(ctx, hold)


def _lost(tx: Connection, hold: UploadHold, now: int) -> UploadBusy:
    """Return the error of a holder that has lost its lease.

    Raises:
        UploadUnknown: the session has ended.

    """
    get_upload(tx, hold.name, hold.upload.id, now)
    return busy()


def _limited(ctx: ServiceContext, staged: Staged) -> Callable[[memoryview], None]:
    """Return a sink into `staged` that refuses to grow a blob over the limit."""

    def sink(view: memoryview) -> None:
        _check_limit(ctx, staged.offset + len(view))
        staged.write(view)

    return sink


def _check_limit(ctx: ServiceContext, size: int) -> None:
    """Refuse a blob over the limit, by its declared length before any of it is read."""
    limit = ctx.limits.max_blob_bytes
    if size > limit:
        raise BlobTooLarge(f"a blob may have at most {limit} bytes", limit=limit)


def _check_length(staged: Staged, upload: Upload, span: Span | None, *, is_complete: bool) -> None:
    if is_complete and span and staged.offset - upload.received_bytes != span.length:
        raise _unlike_its_span()


def _cut_short() -> SizeInvalid:
    return SizeInvalid("the body ended before its declared length")


def _unlike_its_span() -> SizeInvalid:
    return SizeInvalid("the body is not as long as its Content-Range says")

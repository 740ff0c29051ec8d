"""Upload sessions: start, append, finish and cancel them, on any worker.

The row says what a session has received: the bytes are flushed before the row is committed, and
the row before the answer. Bytes beyond the row were never acknowledged; the next writer cuts them
off. Only the holder of a session's lease writes (`upload_leases`). It uses the row as it was when
it took the lease, and each of its transactions checks the lease's token.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

from cloudcore.db.base import Connection, OutcomeUnknown
from registry.blobstore.base import ObjectUnknown, StageBusy, Staged, Stored
from registry.blobstore.inline import store_inline
from registry.errors import (
    BlobTooLarge,
    DigestMismatch,
    KmsKeyDeleted,
    KmsKeyDisabled,
    SizeInvalid,
    StoreUnavailable,
    TooManyUploads,
    UploadBusy,
    UploadOutOfOrder,
)
from registry.metadata.blobs import uploads
from registry.metadata.blobs.uploads import Upload
from registry.metadata.repositories.live import Repository
from registry.oci.digest import Digest
from registry.oci.reference import Name
from registry.services.access import Rights
from registry.services.blobs.recording import NewBytes, drop_stored, record_blob
from registry.services.blobs.sealing import (
    check_writable,
    find_upload_keys,
    key_of,
    new_seal,
    repository_and_key,
    seal_under,
    wrap_for_row,
)
from registry.services.blobs.upload_leases import (
    UploadHold,
    UploadLeaseLost,
    busy,
    get_upload,
    unknown,
)
from registry.services.blobs.upload_stages import (
    discard_stage,
    drop_received,
    new_stage_seal,
    open_stage,
)
from registry.services.context import ServiceContext
from registry.services.repositories.names import repository_for_push

T = TypeVar("T")

_RETRY_SECONDS: Final = 60
"""``Retry-After``, in seconds, if too many uploads are open."""


class Body(Protocol):
    """A request body, received and finished in a bulk thread."""

    async def __call__(
        self, sink: Callable[[memoryview], None], finish: Callable[[bool], T], /
    ) -> T:
        """Pass the body to `sink`; return ``finish(is_complete)``."""
        ...


ReadBody = Callable[[int], Awaitable[bytes | None]]


class Span(NamedTuple):
    """A chunk's position by its ``Content-Range``: offset of its first byte, and length."""

    first: int
    length: int


class Chunk(NamedTuple):
    """A request's body, and the length and position that its headers declare."""

    body: Body
    declared_bytes: int | None
    """``Content-Length``, or None."""
    span: Span | None = None
    read: ReadBody | None = None
    """Reads the same body, of at most so many bytes, into memory; None if it ended early."""

    def is_small(self, limit: int) -> bool:
        """Return True if the body is known to have at most `limit` bytes, which is not 0."""
        declared = self.declared_bytes
        return self.read is not None and declared is not None and declared <= limit > 0

    async def whole(self) -> bytes:
        """Return the body, which is small.

        Raises:
            SizeInvalid: the client left before its end; or it is not as long as `span`.

        """
        assert self.read is not None
        assert self.declared_bytes is not None
        body = await self.read(self.declared_bytes)
        if body is None:
            raise _cut_short()
        if self.span and self.span.length != len(body):
            raise _unlike_its_span()
        return body


class _Progress(NamedTuple):
    """What a session has after a chunk."""

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
        NameUnknown: there is no such repository, and none is created.
        KmsKeyDeleted, KmsKeyDisabled: the KMS key that it writes under cannot be used.
        TooManyUploads: the repository or its account has the maximum of open sessions.

    """
    repository = await repository_for_push(ctx, name, rights)
    upload_id = ctx.new_id()
    now = ctx.clock()
    await ctx.database.read(_check_may_start, ctx, repository, now)
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


def _check_may_start(tx: Connection, ctx: ServiceContext, repository: Repository, now: int) -> None:
    """Check the KMS key, and that the repository and its account may have one more open session.

    This is a read before the write transaction, so that a refusal does not occupy SQLite's writer;
    concurrent requests may exceed the maximum by a few.
    """
    check_writable(ctx, tx, repository)
    limits = ctx.limits
    most = limits.max_open_uploads_per_repository, limits.max_open_uploads
    full = uploads.find_full(tx, repository.id, repository.account_id, now, *most)
    if full is not None:
        raise TooManyUploads(
            f"the {full} has {most[full == 'account']} uploads open, and may have no more; finish"
            " some, cancel some, or wait until they expire",
            retry_after=_RETRY_SECONDS,
        )


async def append_chunk(ctx: ServiceContext, name: Name, upload_id: str, chunk: Chunk) -> int:
    """Append a chunk; return how many bytes the session has received (end-5).

    Raises:
        UploadUnknown, UploadBusy, UploadOutOfOrder, BlobTooLarge, StoreUnavailable.
        SizeInvalid: the body is not as long as `span`, and none of it counts; or the client
            disconnected, and what arrived counts.

    """
    async with _held(ctx, name, upload_id) as hold:
        async with _opened(ctx, hold, chunk) as staged:

            def finish(is_complete: bool) -> _Progress:  # noqa: FBT001 - called by the body
                _check_length(staged, hold.upload, chunk.span, is_complete=is_complete)
                return _Progress(is_complete, staged.offset, staged.flush())

            progress = await chunk.body(_limited(ctx, staged), finish)
        # The staged file is closed: the next writer may open it once the lease is released.
        await _advance(ctx, hold, progress)
    if not progress.is_complete:
        raise _cut_short()
    return progress.received_bytes


async def finish_upload(
    ctx: ServiceContext, name: Name, upload_id: str, expected: Digest, chunk: Chunk
) -> None:
    """Append the last chunk, if any, and make the bytes a blob of the repository (end-6).

    Raises:
        DigestMismatch: the bytes hash to another digest; the session has ended.
        SizeInvalid: the body ended early; what arrived counts, and the session stays open.
        UploadUnknown, UploadBusy, UploadOutOfOrder, BlobTooLarge, StoreUnavailable.

    """
    async with _held(ctx, name, upload_id) as hold:
        if not hold.upload.received_bytes and chunk.is_small(ctx.limits.inline_max_bytes):
            await _finish_small(ctx, hold, expected, chunk)
            return
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


async def _finish_small(
    ctx: ServiceContext, hold: UploadHold, expected: Digest, chunk: Chunk
) -> None:
    """Make the body of a session's only request an inline object.

    If it ends early, nothing of it counts.
    """
    if chunk.span is not None and chunk.span.first:
        raise UploadOutOfOrder(0)
    hold.stage_id = ctx.new_id()
    hold.seal = await new_stage_seal(ctx, hold)
    data = await chunk.whole()
    try:
        stored = store_inline(data, expected, hold.stage_id, key_of(hold.seal))
    except DigestMismatch:
        await _end(ctx, hold)
        raise
    await _record(ctx, hold, stored)


async def push_blob(
    ctx: ServiceContext, name: Name, rights: Rights, expected: Digest, chunk: Chunk
) -> None:
    """Receive a whole blob in one request (end-4b).

    Raises:
        DigestMismatch, SizeInvalid, BlobTooLarge, NameUnknown, StoreUnavailable.
        KmsKeyDeleted, KmsKeyDisabled: the KMS key that it writes under cannot be used.

    """
    _check_limit(ctx, chunk.declared_bytes or 0)
    repository, writing = await repository_and_key(ctx, name, rights)
    stage_id = ctx.new_id()
    seal = await new_seal(ctx, repository.account_id, writing, stage_id)
    if chunk.is_small(ctx.limits.inline_max_bytes):
        small = store_inline(await chunk.whole(), expected, stage_id, key_of(seal))
        await record_blob(ctx, NewBytes(repository.id, repository.account_id, small, seal))
        return
    staged = await ctx.writer.stage(stage_id, key_of(seal), expected.algorithm, is_fresh=True)
    async with aclosing(staged):
        sink = _limited(ctx, staged)

        def finish(is_complete: bool) -> Stored | None:  # noqa: FBT001
            if is_complete and chunk.span and chunk.span.length != staged.offset:
                raise _unlike_its_span()
            return staged.commit(expected) if is_complete else None

        try:
            stored = await chunk.body(sink, finish)
        except BaseException:
            await discard_stage(staged)  # there is no session that could resume them
            raise
        if stored is None:
            await discard_stage(staged)
            raise _cut_short()
        await record_blob(ctx, NewBytes(repository.id, repository.account_id, stored, seal))


async def cancel_upload(ctx: ServiceContext, name: Name, upload_id: str) -> None:
    """End a session and delete its bytes (end-14).

    Raises:
        UploadUnknown: no such session here, or it has ended.
        UploadBusy: another request is writing to it.

    """
    async with ctx.leases.hold(ctx.database, ctx.clock, name, upload_id) as hold:
        hold.is_over = True
        if not await ctx.database.write(uploads.remove_upload, hold.lease):
            raise unknown(upload_id)
        await drop_received(ctx, hold)


def _held(
    ctx: ServiceContext, name: Name, upload_id: str
) -> AbstractAsyncContextManager[UploadHold]:
    """Hold the lease of a session, with its keys."""
    look = partial(find_upload_keys, ctx)
    return ctx.leases.hold(ctx.database, ctx.clock, name, upload_id, look)


@asynccontextmanager
async def _opened(ctx: ServiceContext, hold: UploadHold, chunk: Chunk) -> AsyncIterator[Staged]:
    """Open the staged bytes of a session at the acknowledged offset, where the chunk must begin."""
    upload = hold.upload
    if chunk.span is not None and chunk.span.first != upload.received_bytes:
        raise UploadOutOfOrder(upload.received_bytes)
    _check_limit(ctx, upload.received_bytes + (chunk.declared_bytes or 0))
    try:
        staged = await open_stage(ctx, hold)
    except ObjectUnknown:
        # The acknowledged bytes were lost (a flush failed): the upload must begin anew.
        await _end(ctx, hold)
        raise unknown(upload.id) from None
    async with aclosing(staged):
        try:
            yield staged
        except StageBusy:  # bytes that no row counts are staged there; the next holder resumes them
            raise busy() from None
        except BaseException:
            if hold.has_copy and not hold.is_over:  # no row names the copy
                await discard_stage(staged)
            raise


async def _end(ctx: ServiceContext, hold: UploadHold, staged: Staged | None = None) -> None:
    """End a session, then delete its bytes, unless a row still names them."""
    hold.is_over = True
    is_ended = await ctx.database.write(uploads.remove_upload, hold.lease)
    if staged is not None and (is_ended or hold.has_copy):
        await discard_stage(staged)
    if is_ended:
        await drop_received(ctx, hold)


async def _advance(ctx: ServiceContext, hold: UploadHold, progress: _Progress) -> None:
    """Record what was received, and release the lease."""

    async def advance() -> bool:
        return await ctx.database.write(
            uploads.advance_upload,
            hold.lease,
            progress.received_bytes,
            progress.digests,
            hold.stage_id,
            wrap_for_row(hold.seal),
            ctx.clock() + ctx.limits.upload_idle,
        )

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
        raise await ctx.database.read(_lost, hold, ctx.clock())
    if hold.has_copy:
        await drop_received(ctx, hold)


async def _record(ctx: ServiceContext, hold: UploadHold, stored: Stored) -> None:
    """Record the blob and end its session."""
    upload = hold.upload
    writing = hold.keys.writing if hold.keys else None
    seal = await seal_under(ctx, writing, hold.seal, stored.object_id)
    new = NewBytes(upload.repository_id, upload.account_id, stored, seal)
    hold.is_over = True
    try:
        await record_blob(ctx, new, hold.lease)
    except (OutcomeUnknown, KmsKeyDeleted, KmsKeyDisabled):
        hold.is_over = False
        raise
    except UploadLeaseLost:
        if hold.has_copy:
            await drop_stored(ctx, stored)
        raise await ctx.database.read(_lost, hold, ctx.clock()) from None
    if hold.has_copy:
        await drop_received(ctx, hold)


def _lost(tx: Connection, hold: UploadHold, now: int) -> UploadBusy:
    """Return the error for a request that has lost its lease.

    Raises:
        UploadUnknown: the session has ended.

    """
    get_upload(tx, hold.name, hold.upload.id, now)
    return busy()


def _limited(ctx: ServiceContext, staged: Staged) -> Callable[[memoryview], None]:
    """Return a sink that writes to `staged` and raises BlobTooLarge beyond the limit."""

    def sink(view: memoryview) -> None:
        _check_limit(ctx, staged.offset + len(view))
        staged.write(view)

    return sink


def _check_limit(ctx: ServiceContext, size: int) -> None:
    """Raise BlobTooLarge if `size`, in bytes, is over the limit."""
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

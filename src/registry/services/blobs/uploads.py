"""Upload sessions: started, continued on any worker, committed through one door.

What a session has received is what its row says: the bytes are flushed before the row, the row
is committed before the answer. Bytes beyond the row were never acknowledged; the next writer cuts
them off. One writer holds the staged bytes at a time, and reads the row under that hold.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final, NamedTuple, Protocol, TypeVar

from registry.blobstore.base import BlobWriter, ObjectUnknown, StageBusy, Staged, Stored
from registry.errors import (
    BlobTooLarge,
    DigestMismatch,
    SizeInvalid,
    TooManyUploads,
    UploadBusy,
    UploadOutOfOrder,
    UploadUnknown,
)
from registry.metadata.blobs import uploads
from registry.metadata.blobs.uploads import Upload
from registry.metadata.repositories.live import Repository
from registry.oci.digest import Digest
from registry.oci.reference import Name
from registry.services.access import Rights
from registry.services.blobs.recording import record_blob
from registry.services.context import ServiceContext
from registry.services.repositories.names import repository_for_push

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

    Raises:
        NameUnknown: there is no such repository, and none is made.
        TooManyUploads: the repository or its account has as many open as it may.

    """
    repository = await repository_for_push(ctx, name, rights)
    upload_id = ctx.new_id()
    now = ctx.clock()
    await _check_open_uploads(ctx, repository, now)
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


async def _check_open_uploads(ctx: ServiceContext, repository: Repository, now: int) -> None:
    """Refuse one more session where too many are open.

    Read before the change, so that refusals cost the one writer nothing; concurrent requests may
    exceed the bound by a few.
    """
    most = ctx.limits.max_open_uploads_per_repository, ctx.limits.max_open_uploads
    full = await ctx.database.read(
        uploads.find_full, repository.id, repository.account_id, now, *most
    )
    if full is not None:
        raise TooManyUploads(
            f"the {full} has {most[full == 'account']} uploads open, and may have no more; finish"
            " some, cancel some, or wait until they expire",
            retry_after=_RETRY_SECONDS,
        )


async def find_upload(ctx: ServiceContext, name: Name, upload_id: str) -> Upload:
    """Return an open session of this repository (end-13).

    Raises:
        UploadUnknown: no such session here, or it has ended.

    """
    found = await ctx.database.read(
        uploads.find_upload, name.handle, name.repository, upload_id, ctx.clock()
    )
    if found is None:
        raise _unknown(upload_id)
    return found


async def append_chunk(ctx: ServiceContext, name: Name, upload_id: str, chunk: Chunk) -> int:
    """Append a chunk and return how many bytes the session has now (end-5).

    Raises:
        UploadUnknown, UploadBusy, UploadOutOfOrder, BlobTooLarge, StoreUnavailable.
        SizeInvalid: the body is not as long as `span` says, and nothing of it counts; or the
            client left in the middle, and what came stays and counts.

    """
    found = await find_upload(ctx, name, upload_id)
    async with _held(ctx.writer, found) as staged:
        upload = await _take_up(ctx, name, upload_id, staged, chunk)

        def finish(is_complete: bool) -> _Progress:  # noqa: FBT001 - called by the body
            _check_length(staged, upload, chunk.span, is_complete=is_complete)
            return _Progress(is_complete, staged.offset, staged.flush())

        progress = await chunk.body(_limited(ctx, staged), finish)
        await _advance(ctx, upload_id, progress)
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
    found = await find_upload(ctx, name, upload_id)
    async with _held(ctx.writer, found) as staged:
        upload = await _take_up(ctx, name, upload_id, staged, chunk)

        def finish(is_complete: bool) -> _Progress:  # noqa: FBT001
            _check_length(staged, upload, chunk.span, is_complete=is_complete)
            if not is_complete:
                return _Progress(is_complete, staged.offset, staged.flush())
            return _Progress(is_complete, staged.offset, {}, staged.commit(expected))

        try:
            progress = await chunk.body(_limited(ctx, staged), finish)
        except DigestMismatch:
            await ctx.database.write(uploads.remove_upload, upload_id)
            raise
        if progress.stored is None:
            await _advance(ctx, upload_id, progress)
            raise _cut_short()
        await record_blob(ctx, upload.repository_id, upload.account_id, progress.stored)


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
    found = await find_upload(ctx, name, upload_id)
    async with _held(ctx.writer, found) as staged:
        if not await ctx.database.write(uploads.remove_upload, upload_id):
            raise _unknown(upload_id)
        await staged.discard()


@asynccontextmanager
async def _held(writer: BlobWriter, upload: Upload) -> AsyncIterator[Staged]:
    """Hold a session's bytes until the row that acknowledges them is committed."""
    try:
        staged = await _staged(writer, upload)
    except StageBusy:
        raise UploadBusy("another request is writing to this upload; try again") from None
    async with aclosing(staged):
        yield staged


async def _staged(writer: BlobWriter, upload: Upload) -> Staged:
    """Take up a session's bytes, or begin them; first what is likely to succeed."""
    if not upload.received_bytes:
        with suppress(StageBusy):  # there are bytes that were never acknowledged
            return await writer.stage(upload.id, None)
    try:
        return await writer.resume(upload.id)
    except ObjectUnknown:
        return await writer.stage(upload.id, None)


async def _take_up(
    ctx: ServiceContext, name: Name, upload_id: str, staged: Staged, chunk: Chunk
) -> Upload:
    """Read how far the session has come, under the hold, and go there."""
    try:
        upload = await find_upload(ctx, name, upload_id)
    except UploadUnknown:
        await staged.discard()
        raise
    if chunk.span is not None and chunk.span.first != upload.received_bytes:
        raise UploadOutOfOrder(upload.received_bytes)
    _check_limit(ctx, upload.received_bytes + (chunk.declared_bytes or 0))
    try:
        await staged.rewind(upload.received_bytes, upload.digests, upload.algorithm, data_key=None)
    except ObjectUnknown:
        # A flush failed, and what the row counts was given up: the upload must begin anew.
        await ctx.database.write(uploads.remove_upload, upload_id)
        await staged.discard()
        raise _unknown(upload_id) from None
    return upload


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


async def _advance(ctx: ServiceContext, upload_id: str, progress: _Progress) -> None:
    known = await ctx.database.write(
        uploads.advance_upload,
        upload_id,
        progress.received_bytes,
        progress.digests,
        ctx.clock() + ctx.limits.upload_idle,
    )
    if not known:
        raise _unknown(upload_id)


def _cut_short() -> SizeInvalid:
    return SizeInvalid("the body ended before its declared length")


def _unlike_its_span() -> SizeInvalid:
    return SizeInvalid("the body is not as long as its Content-Range says")


def _unknown(upload_id: str) -> UploadUnknown:
    return UploadUnknown("there is no such upload here, or it has ended", upload=upload_id)

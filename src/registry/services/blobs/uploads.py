"""Upload sessions: start, append, finish and cancel them on any worker; push a blob without one.

``POST`` writes nothing: the session's id contains its state (`upload_ids`). A session gets a row
with its first bytes. Few bytes are stored in the row itself (`small_uploads`), more in the store
(`staged_uploads`).
"""

from __future__ import annotations

from contextlib import aclosing
from functools import partial

from cloudcore.db.base import Connection
from registry.blobstore.base import Stored
from registry.blobstore.inline import store_inline
from registry.metadata.quotas import check_bytes
from registry.metadata.repositories import repository as repositories
from registry.metadata.repositories.repository import Repository
from registry.oci.digest import Digest
from registry.oci.reference import Name
from registry.services.access.decisions import Rights
from registry.services.blobs import small_uploads, staged_uploads
from registry.services.blobs.push_cache import CachedTarget
from registry.services.blobs.recording import NewBytes, record_blob
from registry.services.blobs.sealing import (
    cached_target,
    find_upload_keys,
    key_for,
    key_of,
    new_seal,
    repository_and_key,
)
from registry.services.blobs.upload_bodies import (
    Chunk,
    check_limit,
    check_offset,
    check_span,
    cut_short,
)
from registry.services.blobs.upload_ids import UploadSession
from registry.services.blobs.upload_sessions import (
    check_room,
    ending_of,
    get_session,
    ids_of,
    room_in_target,
    unwritten_session,
)
from registry.services.blobs.writing_keys import UploadKeys, WritingKey
from registry.services.context import ServiceContext
from registry.services.repositories.names import refuse_push, repository_for_push


async def start_upload(
    ctx: ServiceContext, name: Name, rights: Rights, algorithm: str | None
) -> str:
    """Open an upload session and return its id (end-4a, end-4c).

    Nothing is written, unless the repository is created.

    Raises:
        NameUnknown: there is no such repository, and it cannot be created.
        KmsKeyDeleted, KmsKeyDisabled: the KMS key that the repository writes under cannot be used.
        TooManyUploads: the repository or its account has the maximum of open sessions.

    """
    now = ctx.clock()
    known = cached_target(ctx, name)
    if (
        known is not None
        and await ctx.database.read(room_in_target, ctx, known.target, now) is not None
    ):
        return ctx.upload_ids.new(ids_of(known.target), algorithm, now)
    found = await ctx.database.read(_may_start, ctx, name, now)
    if found is None:
        repository = await repository_for_push(ctx, name, rights)
        found = await ctx.database.read(_check_may_start, ctx, repository, now)
    ctx.push_cache.keep(name, *found)
    return ctx.upload_ids.new(ids_of(found[0]), algorithm, now)


def _may_start(
    tx: Connection, ctx: ServiceContext, name: Name, now: int
) -> tuple[Repository, WritingKey | None] | None:
    repository = repositories.find_repository(tx, name.handle, name.repository)
    return None if repository is None else _check_may_start(tx, ctx, repository, now)


def _check_may_start(
    tx: Connection, ctx: ServiceContext, repository: Repository, now: int
) -> tuple[Repository, WritingKey | None]:
    """Check that a repository accepts pushes and may have one more open session.

    Return the repository and the KMS key that it writes under; no key if blobs are stored plain.
    """
    refuse_push(tx, repository)
    writing = key_for(tx, ctx, repository)
    check_room(tx, ctx, repository.id, repository.account_id, now)
    return repository, writing


async def append_chunk(ctx: ServiceContext, name: Name, upload_id: str, chunk: Chunk) -> int:
    """Append a chunk; return how many bytes the session has received (end-5).

    Raises:
        UploadUnknown, UploadBusy, UploadOutOfOrder, BlobTooLarge, TooManyUploads, StoreUnavailable
        QuotaExceeded: the account has no room for the bytes that the session would then have.
        SizeInvalid: either the body is not as long as its span, and none of it counts; or the
            client disconnected, and the bytes that arrived count.

    """
    known = None if chunk.span is not None and chunk.span.first else cached_target(ctx, name)
    if known is not None:
        begun = await small_uploads.begin_in_target(ctx, name, known, upload_id, chunk)
        if begun is not None:
            return begun
    adding = chunk.declared_bytes or 0
    session, keys = await _find_to_append(ctx, name, upload_id, known, adding)
    if keys is not None:
        check_offset(chunk.span, session.upload.received_bytes)
        few = await chunk.few(small_uploads.small_bytes_left(ctx, session))
        if few is not None:
            received = await small_uploads.append_small(ctx, name, session, keys, few.data)
            if not few.is_complete:
                raise cut_short()
            return received
    return await staged_uploads.stage_chunk(ctx, name, session, chunk)


async def _find_to_append(
    ctx: ServiceContext, name: Name, upload_id: str, known: CachedTarget | None, adding: int
) -> tuple[UploadSession, UploadKeys | None]:
    if known is not None:
        of = known, upload_id, ctx.clock(), adding
        found = await ctx.database.read(small_uploads.find_unwritten, ctx, *of)
        if found is not None:
            return found
    return await ctx.database.read(
        _find, ctx, name, upload_id, ctx.clock(), may_count=True, adding=adding
    )


async def finish_upload(
    ctx: ServiceContext, name: Name, upload_id: str, expected: Digest, chunk: Chunk
) -> None:
    """Append the last chunk, if any, and make the bytes a blob of the repository (end-6).

    Raises:
        DigestMismatch: the bytes hash to another digest; the session has ended.
        SizeInvalid: the body ended early; what arrived counts, and the session stays open.
        UploadUnknown, UploadBusy, UploadOutOfOrder, BlobTooLarge, TooManyUploads, StoreUnavailable.
        QuotaExceeded: the account has no room for the blob, and does not have the blob yet.

    """
    brings, now = chunk.declared_bytes != 0, ctx.clock()
    known = small_uploads.target_for(ctx, name, chunk)
    unwritten = known and unwritten_session(ctx, ids_of(known.target), upload_id, now)
    if known and unwritten and (chunk.span is None or not chunk.span.first):
        ending = ending_of(ctx, upload_id, None)
        if await small_uploads.push_to_target(ctx, name, known, chunk, expected, ending):
            return
    known = None if brings else cached_target(ctx, name)
    session, keys = await ctx.database.read(
        _find, ctx, name, upload_id, now, known=known, brings_bytes=brings
    )
    if keys is not None:
        check_offset(chunk.span, session.upload.received_bytes)
        few = await chunk.few(small_uploads.small_bytes_left(ctx, session))
        if few is not None:
            if not brings and small_uploads.has_digests(session):
                proved = None if known is None else known.target
                if await small_uploads.finish_sealed(
                    ctx, name, session, keys.writing, expected, proved
                ):
                    return
                keys = await ctx.database.read(partial(find_upload_keys, ctx), session.upload)
            if few.is_complete:
                await small_uploads.finish_small(ctx, name, session, keys, few.data, expected)
                return
            if not session.is_written:
                upload = session.upload
                ids = upload.repository_id, upload.account_id
                await ctx.database.read(check_room, ctx, *ids, ctx.clock())
            await small_uploads.append_small(ctx, name, session, keys, few.data)
            raise cut_short()
    await staged_uploads.finish_staged(ctx, name, session, expected, chunk)


def _find(
    tx: Connection,
    ctx: ServiceContext,
    name: Name,
    upload_id: str,
    now: int,
    *,
    may_count: bool = False,
    adding: int = 0,
    brings_bytes: bool = True,
    known: CachedTarget | None = None,
) -> tuple[UploadSession, UploadKeys | None]:
    """Return a session and, if it is small, the keys with which to continue it.

    With `may_count`, check that a session without a row may get one, with `adding` bytes. If the
    request has no body (not `brings_bytes`), the received bytes need not be decrypted
    (`finish_sealed`), and a cached target (`known`) may be verified later.
    """
    session = get_session(tx, ctx, name, upload_id, now)
    upload = session.upload
    if may_count and not session.is_written:
        check_room(tx, ctx, upload.repository_id, upload.account_id, now, adding)
    if small_uploads.small_bytes_left(ctx, session) < 0:
        return session, None
    opens = brings_bytes or not small_uploads.has_digests(session)
    if known is not None and not opens:
        return session, UploadKeys(known.writing, None)
    return session, find_upload_keys(ctx, tx, upload, opens=opens)


async def push_blob(
    ctx: ServiceContext, name: Name, rights: Rights, expected: Digest, chunk: Chunk
) -> None:
    """Receive a whole blob in one request (end-4b).

    Raises:
        DigestMismatch, SizeInvalid, BlobTooLarge, NameUnknown, StoreUnavailable.
        QuotaExceeded: the account has no room for the blob, and does not have the blob yet.
        KmsKeyDeleted, KmsKeyDisabled: the KMS key that the repository writes under cannot be used.

    """
    check_limit(ctx, chunk.declared_bytes or 0)
    known = small_uploads.target_for(ctx, name, chunk)
    if known is not None and await small_uploads.push_to_target(ctx, name, known, chunk, expected):
        return
    repository, writing, use = await repository_and_key(ctx, name, rights)
    ctx.push_cache.keep(name, repository, writing)
    if use is not None:
        of = repository.account_id, expected, use
        use = await ctx.database.read(staged_uploads.use_unless_there, *of)
    check_bytes(use, chunk.declared_bytes or 0)
    stage_id = ctx.new_id()
    seal = await new_seal(ctx, repository.account_id, writing, stage_id)
    few = await chunk.few(ctx.limits.inline_max_bytes or -1)
    if few is not None:
        if not few.is_complete:
            raise cut_short()
        check_limit(ctx, len(few.data))
        small = store_inline(few.data, expected, stage_id, key_of(seal))
        await record_blob(ctx, NewBytes(repository.id, repository.account_id, small, seal))
        return
    staged = await ctx.writer.stage(stage_id, key_of(seal), expected.algorithm, is_fresh=True)
    async with aclosing(staged):
        sink = staged_uploads.limited(ctx, staged, use)

        def finish(is_complete: bool) -> Stored | None:  # noqa: FBT001
            if is_complete:
                check_span(chunk.span, staged.offset)
            return staged.commit(expected) if is_complete else None

        try:
            stored = await chunk.body(sink, finish)
        except BaseException:
            await staged_uploads.discard_stage(staged)  # there is no session that could resume them
            raise
        if stored is None:
            await staged_uploads.discard_stage(staged)
            raise cut_short()
        await record_blob(ctx, NewBytes(repository.id, repository.account_id, stored, seal))


async def cancel_upload(ctx: ServiceContext, name: Name, upload_id: str) -> None:
    """End a session and delete its bytes (end-14); raise `UploadUnknown` or `UploadBusy`."""
    session = await ctx.database.read(get_session, ctx, name, upload_id, ctx.clock())
    if session.is_written:
        await staged_uploads.cancel_staged(ctx, name, session)
    else:
        await small_uploads.end_small(ctx, name, session)

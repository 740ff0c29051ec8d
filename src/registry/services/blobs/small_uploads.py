"""Upload sessions with few bytes, which are stored in the session's row without a lease.

The body of a request is read into memory, appended to the bytes in the row, sealed under a new data
key, and written with the row's progress, or with the blob's rows, in one transaction. That
transaction checks that the session has not changed since it was read. A last request without a body
seals nothing: the sealed bytes in the row become the object, verified by the digests stored with
them.
"""

from __future__ import annotations

from cloudcore.db.base import Connection, OutcomeUnknown
from registry.blobstore.base import ObjectDamaged, ObjectUnknown
from registry.blobstore.inline import (
    SealedUpload,
    adopt_inline,
    digests_of_sealed,
    open_inline,
    store_inline,
)
from registry.blobstore.sealed.frame_format import sealed_bytes
from registry.errors import DigestMismatch, KmsKeyDeleted, KmsKeyDisabled
from registry.metadata.blobs import uploads
from registry.metadata.blobs.new_blobs import PushTarget
from registry.metadata.blobs.new_blobs import begin_in_target as begin_row
from registry.metadata.quotas import check_bytes
from registry.oci.digest import Digest
from registry.oci.reference import Name
from registry.services.blobs import sealing
from registry.services.blobs.deduplication import NotWrapped
from registry.services.blobs.push_cache import CachedTarget
from registry.services.blobs.recording import NewBytes, TargetChangedError, record_blob
from registry.services.blobs.upload_bodies import Chunk, check_limit
from registry.services.blobs.upload_ids import UploadSession, unknown
from registry.services.blobs.upload_leases import UploadLeaseLost
from registry.services.blobs.upload_sessions import (
    ending_of,
    ids_of,
    lost_session,
    room_in_target,
    room_of,
    unwritten_session,
)
from registry.services.blobs.writing_keys import Seal, UploadKeys, WritingKey
from registry.services.context import ServiceContext


def small_bytes_left(ctx: ServiceContext, session: UploadSession) -> int:
    """Return how many more bytes a session may receive while staying small; -1 if it is not small.

    A session that has or had a lease is not small: it may have staged bytes.
    """
    upload, limit = session.upload, ctx.limits.inline_max_bytes
    if limit <= 0 or upload.lease_holder is not None:
        return -1
    if upload.body is None and (upload.received_bytes or upload.lease_token >= uploads.FIRST_TOKEN):
        return -1
    return max(-1, limit - upload.received_bytes)


async def append_small(
    ctx: ServiceContext, name: Name, session: UploadSession, keys: UploadKeys, data: bytes
) -> int:
    """Append a few bytes to a small session; return how many it has received in total.

    Raise `UploadUnknown`, `UploadBusy`, `BlobTooLarge` or `QuotaExceeded` like `append_chunk`.
    """
    upload = session.upload
    before, _ = await open_received(ctx, session, keys)
    whole = before + data
    check_limit(ctx, len(whole))
    check_bytes(session.use, len(whole))
    received = await _seal_received(ctx, upload, keys.writing, whole)
    try:
        is_kept = await ctx.database.write(_keep, ctx, session, received, ctx.clock())
    except OutcomeUnknown:
        is_kept = await ctx.database.write(_keep, ctx, session, received, ctx.clock())
    if not is_kept:
        raise await ctx.database.read(lost_session, ctx, name, upload.id, ctx.clock())
    return len(whole)


async def _seal_received(
    ctx: ServiceContext, upload: uploads.Upload, writing: WritingKey | None, data: bytes
) -> uploads.ReceivedBytes:
    """Seal `data`, all received bytes of a small session, for the session's row.

    Raise `KmsKeyDeleted` or `KmsKeyDisabled` if the KMS key `writing` cannot be used.
    """
    stage_id = ctx.new_id()
    seal = await sealing.new_seal(ctx, upload.account_id, writing, stage_id)
    if seal is None:
        return uploads.ReceivedBytes(len(data), {}, stage_id, None, data)
    body = sealed_bytes(data, seal.data_key, stage_id)
    kept = SealedUpload(body, seal.wrapped, stage_id, len(data))
    digests = digests_of_sealed(kept, data, upload.algorithm)
    return uploads.ReceivedBytes(len(data), digests, stage_id, sealing.wrap_for_row(seal), body)


def has_digests(session: UploadSession) -> bool:
    """Return True if the row has its bytes' digests; then `finish_sealed` needs no data key."""
    return session.upload.body is not None and bool(session.upload.digests)


async def finish_sealed(
    ctx: ServiceContext,
    name: Name,
    session: UploadSession,
    writing: WritingKey | None,
    expected: Digest,
    target: PushTarget | None = None,
) -> bool:
    """Make the sealed bytes of a small session an inline object, and end the session.

    Return False if that is not possible: the bytes must be decrypted, to verify another digest or
    to wrap their data key under another KMS key; they are damaged; or the cached `target` has
    changed, or is not the session's.

    Raises:
        UploadUnknown, UploadBusy: the session has ended, or another request writes to it.

    """
    upload = session.upload
    if target is not None and (target.repository_id, target.account_id) != _ids_of(upload):
        return False
    wrap = uploads.UploadWrap(upload.kms_key_id or "", upload.wrapped_data_key or b"")
    if upload.body is None or writing is None or wrap.kms_key_id != writing.kms_key_id:
        return False
    kept = SealedUpload(upload.body, wrap.wrapped_data_key, upload.stage_id, upload.received_bytes)
    stored = adopt_inline(kept, upload.digests, expected)
    if stored is None:
        return False
    try:
        new = NewBytes(*_ids_of(upload), stored, wrap, target=target)
        await _record(ctx, name, session, new)
    except (NotWrapped, TargetChangedError):
        return False
    return True


async def finish_small(
    ctx: ServiceContext,
    name: Name,
    session: UploadSession,
    keys: UploadKeys,
    data: bytes,
    expected: Digest,
) -> None:
    """Make the bytes of a small session and `data` an inline object, and end the session.

    Raises:
        DigestMismatch: the bytes hash to another digest; the session has ended.
        UploadUnknown, UploadBusy: the session has ended, or another request writes to it.
        BlobTooLarge: the bytes exceed the limit of a blob.

    """
    upload = session.upload
    before, seal = await open_received(ctx, session, keys)
    whole = before + data
    check_limit(ctx, len(whole))
    stage_id, sealed = upload.stage_id, upload.body
    if data or seal is None or keys.writing is None:
        stage_id, sealed = ctx.new_id(), None
        seal = await sealing.new_seal(ctx, upload.account_id, keys.writing, stage_id)
    try:
        stored = store_inline(whole, expected, stage_id, sealing.key_of(seal), sealed)
    except DigestMismatch:
        await end_small(ctx, name, session)
        raise
    seal = await sealing.seal_under(ctx, keys.writing, seal, stage_id)
    await _record(ctx, name, session, NewBytes(*_ids_of(upload), stored, seal))


async def end_small(ctx: ServiceContext, name: Name, session: UploadSession) -> None:
    """End a session that nobody holds and that has no staged bytes.

    Raise `UploadUnknown` if it has ended, `UploadBusy` if another request has written to it.
    """
    upload = session.upload
    lease = uploads.lease_of(upload) if session.is_written else None
    ending = ending_of(ctx, upload.id, lease)
    if not await ctx.database.write(uploads.remove_upload, ending, ctx.clock()):
        raise await ctx.database.read(lost_session, ctx, name, upload.id, ctx.clock())


async def open_received(
    ctx: ServiceContext, session: UploadSession, keys: UploadKeys | None
) -> tuple[bytes, Seal | None]:
    """Return the received bytes of a small session, decrypted, and their seal.

    Raise `UploadUnknown` if the bytes are damaged; then the session is ended. Raise `KmsKeyDeleted`
    or `KmsKeyDisabled` if the KMS key that seals them cannot be used.
    """
    upload = session.upload
    if upload.body is None:
        return b"", None
    try:
        seal = await sealing.open_seal(ctx, upload, keys)
        opened = open_inline(
            upload.body, upload.stage_id, upload.received_bytes, sealing.key_of(seal)
        )
    except (ObjectUnknown, ObjectDamaged):
        ending = ending_of(ctx, upload.id, uploads.lease_of(upload))
        await ctx.database.write(uploads.remove_upload, ending, ctx.clock())
        raise unknown(upload.id) from None
    return opened.in_memory(), seal


async def _record(ctx: ServiceContext, name: Name, session: UploadSession, new: NewBytes) -> None:
    upload = session.upload
    lease = uploads.lease_of(upload) if session.is_written else None
    try:
        await record_blob(ctx, new, ending_of(ctx, upload.id, lease))
    except UploadLeaseLost:
        raise await ctx.database.read(lost_session, ctx, name, upload.id, ctx.clock()) from None


def _ids_of(upload: uploads.Upload) -> tuple[str, str]:
    return upload.repository_id, upload.account_id


def _keep(
    tx: Connection,
    ctx: ServiceContext,
    session: UploadSession,
    received: uploads.ReceivedBytes,
    now: int,
) -> bool:
    """Write a small session's bytes to its row; return False if the session has changed."""
    expires_at = now + ctx.limits.upload_idle
    if session.is_written:
        lease = uploads.lease_of(session.upload)
        return uploads.advance_upload(tx, lease, received, expires_at)
    return uploads.begin_upload(tx, session.upload, received, now, expires_at)


def target_for(ctx: ServiceContext, name: Name, chunk: Chunk) -> CachedTarget | None:
    """Return the cached target for a push with a small whole body, or None.

    For other bodies the repository is looked up first, so that a push can be refused before the
    body arrives.
    """
    has_few = 0 < (chunk.declared_bytes or 0) <= ctx.limits.inline_max_bytes
    if not has_few or chunk.give_back is None:
        return None
    return sealing.cached_target(ctx, name)


def find_unwritten(
    tx: Connection, ctx: ServiceContext, known: CachedTarget, upload_id: str, now: int, adding: int
) -> tuple[UploadSession, UploadKeys] | None:
    """Return a session without a row that may receive `adding` bytes, and the keys to seal them.

    Return None if any check fails; the caller must find out which.
    """
    session = unwritten_session(ctx, ids_of(known.target), upload_id, now)
    if session is None or small_bytes_left(ctx, session) < 0:
        return None
    room = room_in_target(tx, ctx, known.target, now, upload_id, adding)
    if room is None:
        return None
    return session._replace(use=room.use), UploadKeys(known.writing, None)


async def begin_in_target(
    ctx: ServiceContext, name: Name, known: CachedTarget, upload_id: str, chunk: Chunk
) -> int | None:
    """Insert the row of a session with a whole small body in it; return the body's length.

    Return None, and make the body readable again, if nothing was written; see `push_to_target`.
    Raise `SizeInvalid` if the body is not as long as its span, `OutcomeUnknown` if it is unknown
    whether the session has the body.
    """
    target, writing = known
    now = ctx.clock()
    session = unwritten_session(ctx, ids_of(target), upload_id, now)
    if session is None or room_of(ctx, now) is None or chunk.give_back is None:
        return None
    few = await chunk.few(small_bytes_left(ctx, session))
    if few is None:
        return None
    room = room_of(ctx, now, len(few.data))
    if room and few.is_complete and len(few.data) <= ctx.limits.max_blob_bytes:
        upload, expires_at = session.upload, now + ctx.limits.upload_idle
        try:
            received = await _seal_received(ctx, upload, writing, few.data)
            row = target, room, upload, received, expires_at
            try:
                is_begun = await ctx.database.write(begin_row, *row)
            except OutcomeUnknown:
                is_begun = await ctx.database.write(begin_row, *row)
                if not is_begun:
                    raise  # the session may have this body already, and must not get it twice
            if is_begun:
                return len(few.data)
        except (KmsKeyDeleted, KmsKeyDisabled):
            ctx.push_cache.forget(name)
    chunk.give_back(few)
    return None


async def push_to_target(
    ctx: ServiceContext,
    name: Name,
    known: CachedTarget,
    chunk: Chunk,
    expected: Digest,
    ending: uploads.SessionEnd | None = None,
) -> bool:
    """Make a whole small body a blob and end its session; return False if nothing was written.

    Nothing is written if the target or the session has changed, or the body is incomplete, too
    large, or of another digest. Then the body can be read again, and the caller must find the
    reason.

    Raises:
        SizeInvalid: the body is not as long as its span.
        OutcomeUnknown: see `record_blob`.

    """
    few = await chunk.few(ctx.limits.inline_max_bytes)
    if few is None:
        return False
    is_fit = few.is_complete and len(few.data) <= ctx.limits.max_blob_bytes
    if is_fit and await _push(ctx, name, known, few.data, expected, ending):
        return True
    assert chunk.give_back is not None
    chunk.give_back(few)
    return False


async def _push(
    ctx: ServiceContext,
    name: Name,
    known: CachedTarget,
    data: bytes,
    expected: Digest,
    ending: uploads.SessionEnd | None,
) -> bool:
    target, writing = known
    stage_id = ctx.new_id()
    try:
        seal = await sealing.new_seal(ctx, target.account_id, writing, stage_id)
        stored = store_inline(data, expected, stage_id, sealing.key_of(seal))
        new = NewBytes(target.repository_id, target.account_id, stored, seal, target=target)
        await record_blob(ctx, new, ending)
    except (TargetChangedError, KmsKeyDeleted, KmsKeyDisabled):
        ctx.push_cache.forget(name)
        return False
    except (DigestMismatch, UploadLeaseLost):
        return False
    return True

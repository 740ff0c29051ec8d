"""Fetch a blob from its upstream into an upload session of the platform, and serve its readers.

The bytes go to this process's readers as they arrive, and to the staged file (`fill_staging`). The
blob is recorded only if the digest of all bytes is right. If the upstream breaks off, the rest is
requested.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Final, NoReturn

from cloudcore.db.base import Connection
from registry.blobstore.base import ObjectUnknown, StageBusy
from registry.blobstore.inline import store_inline
from registry.blobstore.sealed.frame_format import FRAME_BYTES
from registry.errors import BlobUnknown, DigestMismatch, StoreUnavailable
from registry.metadata.blobs import objects
from registry.metadata.blobs.uploads import FIRST_TOKEN, Upload
from registry.metadata.pull_through import fills
from registry.metadata.pull_through.fills import Fill
from registry.metadata.quotas import check_bytes
from registry.services.blobs import staged_uploads
from registry.services.blobs.recording import drop_stored
from registry.services.blobs.sealing import find_upload_keys, key_of
from registry.services.blobs.upload_ids import RepositoryIds, UploadSession, new_upload
from registry.services.blobs.upload_leases import UploadHold
from registry.services.blobs.writing_keys import UploadKeys
from registry.services.context import ServiceContext
from registry.services.pull_through.feed import Feed, StagedFill
from registry.services.pull_through.fill_staging import FillStage
from registry.services.pull_through.fills import FillPace, FillSource, FillUnread, TooSlow
from registry.upstream.base import (
    BlobStream,
    NotUpstream,
    UpstreamBroken,
    UpstreamFailed,
    UpstreamUnreachable,
)

_TRIES: Final = 3
"""The maximum number of successive requests to an upstream that break off without new bytes."""
_PAUSE_SECONDS: Final = 0.2
_NO_SUCH_RANGE: Final = 416
MOST_UNLISTED_BYTES: Final = 1024**3
"""The maximum size of a blob that no manifest here lists: a client may have made up its digest."""
_DUPLICATE_SECONDS: Final = 1
"""Seconds for which verified bytes stay as an object if the account already has a copy: by this
object, readers in other workers learn that the bytes are right."""


class FillTaken(Exception):
    """Another worker has begun to fetch the blob, or has just finished."""


class AlreadyThere(Exception):
    """The repository already has the blob."""


class AnotherLength(UpstreamBroken):
    """The upstream now states another length than before; the staged bytes are dropped."""


async def fill(ctx: ServiceContext, source: FillSource, feed: Feed, found: Fill | None) -> None:
    """Fetch a blob, serve its readers and record it; continue the fill `found`, if any.

    If the upstream fails and a manifest lists the blob, the staged bytes stay for the next request.

    Raises:
        AlreadyThere: the repository already has the blob.
        FillTaken, UploadBusy: another worker fetches it.
        UploadUnknown: the fill `found` has ended, or the repository is gone.
        NotUpstream, UpstreamFailed: the upstream lacks the blob, or gave no usable answer.
        AnotherLength: the upstream stated two lengths; the received bytes are dropped.
        FillUnread: the fill has no readers any more, and is slow.
        BlobUnknown: no manifest here lists the blob, and it is longer than such a blob may be.
        DigestMismatch: the upstream sent other bytes; they are dropped.
        UploadLeaseLost: another worker has taken the fill over.
        PlatformError: the store, the database or the KMS key failed.

    """
    session = UploadSession(found.upload if found else _new_upload(ctx, source), found is not None)
    look = partial(_claim, ctx, source, found is None)
    async with ctx.leases.hold(ctx, source.name, session, look) as hold:
        try:
            await _Fetch(ctx, source, feed, hold, found.size if found else None).run()
        except (DigestMismatch, NotUpstream, AnotherLength):
            if not hold.is_over:
                await _drop(ctx, hold)
            raise
        except ObjectUnknown:  # recorded bytes are lost
            await staged_uploads.end_staged(ctx, hold)
            raise FillTaken from None
        except StageBusy:
            raise FillTaken from None
        except Exception:
            if not hold.is_over and (source.size is None or not hold.upload.received_bytes):
                await _drop(ctx, hold)
            raise


async def _drop(ctx: ServiceContext, hold: UploadHold) -> None:
    """End a fill, and delete its staged bytes, whose file must be closed."""
    if await staged_uploads.end_staged(ctx, hold):
        with suppress(StageBusy, StoreUnavailable):  # the orphan scan finds it
            await ctx.writer.discard(hold.stage_id)


def _new_upload(ctx: ServiceContext, source: FillSource) -> Upload:
    algorithm = source.digest.algorithm
    ids = RepositoryIds(source.repository_id, source.account_id)
    return new_upload(ctx.new_id(), ids, None if algorithm == "sha256" else algorithm)


def _claim(
    ctx: ServiceContext,
    source: FillSource,
    is_new: bool,  # noqa: FBT001 - called by the transaction that takes the lease
    tx: Connection,
    upload: Upload,
) -> UploadKeys:
    """Insert the row of a new fill; return the keys to stage its bytes with.

    The row is inserted before the blob is looked up: if another fill ends in between, the look-up
    finds the blob that it recorded. Raise `FillTaken` if the account has a fill with this key,
    `AlreadyThere` if the repository has the blob, `QuotaExceeded` if the account has no room for
    the size that a manifest lists.
    """
    added = fills.add_fill(tx, source.account_id, source.key, upload.id) if is_new else None
    if is_new and added is None:
        raise FillTaken
    canonical = objects.canonical_digest(tx, source.name.handle, source.digest)
    if canonical and objects.whole_blobs(tx, source.repository_id, [str(canonical)]):
        raise AlreadyThere
    if added and added.use and not objects.has_object(tx, source.account_id, source.digest):
        check_bytes(added.use, source.size or 0)
    return find_upload_keys(ctx, tx, upload)


def _taken_over(upload: Upload, feed: Feed) -> Upload:
    """Return the session of another worker's fill, changed so that this worker can continue it.

    Readers of this process may have read more bytes from the staged file than were recorded; these
    count too. The bytes are copied to a new file, since readers of the old one could not detect
    that its end was cut off and rewritten.
    """
    received = upload.received_bytes
    if feed.stage is not None and feed.stage.stage_id == upload.stage_id:
        received = max(received, feed.end - feed.end % FRAME_BYTES)
    digests = upload.digests if received == upload.received_bytes else {}
    return upload._replace(received_bytes=received, digests=digests, stage_shared=True)


class _Fetch:
    """One fetch of a blob, by the worker that holds the fill's lease."""

    def __init__(
        self,
        ctx: ServiceContext,
        source: FillSource,
        feed: Feed,
        hold: UploadHold,
        size: int | None,
    ) -> None:
        self._ctx = ctx
        self._source = source
        self._feed = feed
        self._hold = hold
        self._size = size
        if hold.upload.lease_token != FIRST_TOKEN:
            hold.upload = _taken_over(hold.upload, feed)
        self._offset = hold.upload.received_bytes
        """The offset after the last received byte."""
        self._stage: FillStage | None = None
        self._small = bytearray()
        """The bytes of a blob that becomes an inline object; they are not staged."""
        self._pace = FillPace(feed, ctx.fills.limits)

    async def run(self) -> None:
        async with AsyncExitStack() as resources:
            if self._offset:
                await self._open_stage(resources)
            tries = 0
            while not (self._offset and self._offset == self._size):
                before = self._offset
                try:
                    await self._ask(resources)
                    break
                except AnotherLength:
                    raise
                except FillUnread:
                    if self._feed.is_read:
                        continue  # a reader has come just now
                    self._feed.is_given_up = True
                    await self._keep()
                    raise
                except (UpstreamUnreachable, UpstreamBroken) as failure:
                    if failure.http_status == _NO_SUCH_RANGE and self._is_length_doubtful():
                        raise AnotherLength(str(failure)) from None
                    tries = tries + 1 if self._offset == before else 1
                    if tries >= _TRIES or isinstance(failure, TooSlow):
                        await self._keep()
                        raise
                    with self._pace.counted():
                        await asyncio.sleep(_PAUSE_SECONDS * tries)
                except UpstreamFailed:
                    await self._keep()
                    raise
            await (self._record_small() if self._stage is None else self._record(self._stage))

    async def _ask(self, resources: AsyncExitStack) -> None:
        """Request the missing bytes from the upstream, and receive them."""
        ctx, source = self._ctx, self._source
        assert ctx.upstream is not None
        opened = ctx.upstream.open_blob(source.remote, source.digest, self._offset)
        async with AsyncExitStack() as answer:
            with self._pace.counted():
                found = await answer.enter_async_context(opened)
            self._check_size(found.size)
            if self._stage is None and not self._is_small():
                await self._open_stage(resources)
            async for chunk in self._rest_of(found):
                if self._stage is None:
                    self._small += chunk
                else:
                    await self._stage.take(chunk)
                self._offset += len(chunk)
                self._pace.add(len(chunk))
        if self._size is not None and self._offset < self._size:
            raise UpstreamBroken("the blob ended early")

    async def _rest_of(self, found: BlobStream) -> AsyncIterator[bytes]:
        """Yield the missing bytes, but no more than the blob has.

        An upstream that ignores ranges starts at 0: already staged bytes are skipped. If they
        differ now, the digest will not match.
        """
        at = found.start
        if at > self._offset:
            raise UpstreamBroken("the blob does not begin where it was asked for")
        most = self._most_bytes if self._size is None else self._size
        wanted = self._offset
        while chunk := await self._pace.next_of(found.chunks):
            self._ctx.pulls.cache.fetched(self._source.remote.rule_id, len(chunk))
            begin, at = at, at + len(chunk)
            if at > most:
                self._refuse_length("the blob is longer than announced, or than is allowed")
            if at > wanted:
                yield chunk[wanted - begin :] if begin < wanted else chunk
                wanted = at

    @property
    def _most_bytes(self) -> int:
        most = self._ctx.limits.max_blob_bytes
        return most if self._source.size is not None else min(most, MOST_UNLISTED_BYTES)

    def _refuse_length(self, words: str) -> NoReturn:
        """Raise the error for a blob that is longer than allowed, as declared or as sent."""
        if self._size is None and self._source.size is None:
            raise BlobUnknown(
                "no manifest here lists the blob, and it is too long for that; pull its image",
                digest=str(self._source.digest),
            )
        raise UpstreamBroken(words)

    def _is_small(self) -> bool:
        """Return True if the blob becomes an inline object."""
        limit = self._ctx.limits.inline_max_bytes
        return limit > 0 and self._size is not None and self._size <= limit

    def _check_size(self, size: int | None) -> None:
        """Set the size, as the upstream or a manifest states it; raise if too long or changed."""
        size = size if size is not None else self._size or self._source.size
        if size is None:
            return
        if size > self._most_bytes:
            self._refuse_length("the blob is longer than is allowed here")
        if self._size is None and self._stage is None:
            self._size = size
        elif self._size is not None and size != self._size:
            kind = AnotherLength if self._is_length_doubtful() else UpstreamBroken
            raise kind("the blob has another length than before")

    def _is_length_doubtful(self) -> bool:
        """Return True if no manifest confirms the length that the upstream stated."""
        return self._size is None or self._size != self._source.size

    async def _open_stage(self, resources: AsyncExitStack) -> None:
        """Open the staged file, and announce it to readers, here and in other workers."""
        ctx, hold, feed = self._ctx, self._hold, self._feed
        staged = await staged_uploads.open_stage(ctx, hold)
        stage = FillStage(ctx, hold, staged, feed, self._size)
        resources.push_async_callback(stage.aclose)
        feed.open(self._size, StagedFill(hold.stage_id, key_of(hold.seal)), self._offset)
        try:
            await stage.publish()
        except BaseException:
            if hold.has_copy:  # no row names it
                await staged_uploads.discard_stage(staged)
            raise
        self._stage = stage

    async def _keep(self) -> None:
        """Write and record the bytes received so far, so that a later request can continue."""
        if self._stage is not None and self._offset:
            await self._stage.settle()
            await self._stage.note()

    async def _record(self, stage: FillStage) -> None:
        """Record the blob if its digest is right."""
        hold = self._hold
        try:
            stored = await stage.commit(self._source.digest)
        except DigestMismatch:
            await staged_uploads.end_staged(self._ctx, hold, stage.staged)
            raise
        is_new = await staged_uploads.record_staged(self._ctx, hold, stored, is_cached=True)
        self._feed.finish()
        if not is_new:
            try:
                await asyncio.sleep(_DUPLICATE_SECONDS)
            finally:
                await drop_stored(self._ctx, stored)

    async def _record_small(self) -> None:
        ctx, hold, whole = self._ctx, self._hold, bytes(self._small)
        hold.seal = await staged_uploads.new_stage_seal(ctx, hold)
        stored = store_inline(whole, self._source.digest, hold.stage_id, key_of(hold.seal))
        await staged_uploads.record_staged(ctx, hold, stored, is_cached=True)
        self._feed.open(len(whole), None)
        self._feed.append(whole)
        self._feed.finish()

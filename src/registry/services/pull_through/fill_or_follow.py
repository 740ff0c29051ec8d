"""Get a blob: fetch it, or follow the worker that fetches it, by reading the bytes it stages.

If the fetching worker dies, another one takes over.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, suppress
from typing import Final

from cloudcore.db.base import Connection
from cloudcore.errors import PlatformError, Unavailable
from registry.blobstore.base import DataKey, ObjectUnknown, OpenObject, StageBusy, StagedDropped
from registry.errors import BlobUnknown, DigestMismatch, StoreUnavailable, UploadBusy, UploadUnknown
from registry.metadata.blobs import objects, uploads
from registry.metadata.blobs.uploads import FIRST_TOKEN, SessionEnd, Upload
from registry.metadata.pull_through import fills
from registry.metadata.pull_through.cached_images import links_of_rule
from registry.metadata.pull_through.fills import Fill
from registry.metadata.pull_through.rules import find_rule_for
from registry.services.blobs.upload_leases import UploadLeaseLost, has_run_out
from registry.services.context import ServiceContext
from registry.services.pull_through.feed import Feed, StagedFill
from registry.services.pull_through.fill_blob import AlreadyThere, FillTaken, fill
from registry.services.pull_through.fills import FillSource, FillUnread
from registry.services.pull_through.remote import as_error
from registry.services.pull_through.upstream_states import record_failure
from registry.upstream.base import NotUpstream, UpstreamBroken, UpstreamFailed

_ROUNDS: Final = 20
"""How many times the fetching worker may change before readers get 503."""
_PAUSE_SECONDS: Final = 0.05

_log = logging.getLogger(__name__)
_LOOK_SECONDS: Final = 0.02
"""The first pause between looks for staged bytes; later pauses are longer."""
_LONGEST_LOOK_SECONDS: Final = 0.1
_WATCH_SECONDS: Final = 0.5
"""Seconds between checks that the other worker is still fetching."""


async def run_fill(ctx: ServiceContext, source: FillSource, feed: Feed) -> None:
    """Feed a blob to its readers until all bytes have arrived, or fail the feed; never raise.

    If the blob is already stored, the feed finishes without bytes.
    """
    failure: Exception = Unavailable("the blob could not be fetched; try again", retry_after=5)
    try:
        if await _fetch_or_follow(ctx, source, feed):
            feed.finish()
    except UpstreamFailed as error:
        failure = as_error(error, ctx.clock())
        _log.warning("blob %s of %s: %s", source.digest, source.name, failure.message)
    except NotUpstream:
        failure = BlobUnknown(
            f"the upstream of {source.name} has no blob {source.digest}", digest=str(source.digest)
        )
    except DigestMismatch:
        broken = UpstreamBroken("it sent other bytes than those of the digest")
        failure = as_error(broken, ctx.clock())
        await _note(ctx, source, broken)
        _log.warning("the upstream of %s sent wrong bytes for %s", source.name, source.digest)
    except (FillUnread, UploadLeaseLost):
        pass
    except PlatformError as error:
        failure = error
    except Exception:  # noqa: BLE001 - a bug, or the disk: readers are told, and the log has it
        _log.exception("the fill of blob %s has failed", source.digest)
    finally:
        feed.fail(failure)


async def _note(ctx: ServiceContext, source: FillSource, failure: UpstreamFailed) -> None:
    """Record a fault of the upstream that was found only after all bytes had arrived."""
    with suppress(Unavailable):  # readers get the failure nevertheless
        rule_id = source.remote.rule_id
        await ctx.database.write_relaxed(record_failure, rule_id, failure, ctx.clock())


async def _fetch_or_follow(ctx: ServiceContext, source: FillSource, feed: Feed) -> bool:
    """Return True once the verified bytes are stored; False if the worker changes too often."""
    for _ in range(_ROUNDS):
        found = await ctx.database.read(fills.find_fill, source.account_id, source.key)
        try:
            if found is not None and not _is_free(ctx, found):
                if not _may_follow(source, found):
                    source = await _confirmed(ctx, source)
                if await follow(ctx, source, feed) or await _is_stored_now(ctx, source, feed):
                    return True
                continue
            if found is not None and not _may_go_on(ctx, source, found):
                await _end(ctx, found)
                found = None
            await fill(ctx, source, feed, found)
        except AlreadyThere:
            if await _is_stored_now(ctx, source, feed):
                return True
        except (FillTaken, UploadBusy, UploadUnknown):
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            return True
    return False


async def _confirmed(ctx: ServiceContext, source: FillSource) -> FillSource:
    """Ask the upstream if it has the blob; if so, return the source with `is_known` set.

    Raise `NotUpstream` if the upstream lacks the blob, `UpstreamFailed` if it gave no usable
    answer.
    """
    assert ctx.upstream is not None
    await ctx.upstream.head_blob(source.remote, source.digest)
    return source._replace(is_known=True)


async def _is_stored_now(ctx: ServiceContext, source: FillSource, feed: Feed) -> bool:
    """Return True if the blob is now stored; readers then get the rest from the store.

    Readers that already have bytes from an abandoned fill fail, unless the stored bytes are the
    same.
    """
    stored_id = await ctx.database.read(_find_stored_id, source)
    if stored_id is None:
        return False
    if feed.stage is None or feed.stage.stage_id != stored_id:
        feed.open(feed.size, None)
    return True


def _find_stored_id(tx: Connection, source: FillSource) -> str | None:
    """Return the stored id of undamaged bytes of the blob that the repository may use, or None.

    They are those of the repository itself or, if the upstream is known to have the blob, of
    another repository of the same rule.
    """
    canonical = objects.canonical_digest(tx, source.name.handle, source.digest)
    if canonical is None:
        return None
    own = objects.find_link_alone(tx, source.name.handle, source.name.repository, canonical)
    held = [own] if own else []
    rule = find_rule_for(tx, source.name.handle, source.name.repository)
    if source.is_known and rule is not None and rule.id == source.remote.rule_id:
        held += links_of_rule(tx, rule, canonical, 1)
    return next((link.stored_id for link in held if link.damage is None), None)


def _may_go_on(ctx: ServiceContext, source: FillSource, found: Fill) -> bool:
    """Return True if an abandoned fill is for the same repository, and has not expired."""
    is_same = found.upload.repository_id == source.repository_id
    return is_same and found.expires_at > ctx.clock()


async def _end(ctx: ServiceContext, found: Fill) -> None:
    """End an abandoned fill; do nothing if another worker already did.

    Its bytes are deleted first; if this process then dies, the row is deleted once it has expired.
    """
    upload_id, now = found.upload.id, ctx.clock()
    taken = await ctx.database.write(ctx.leases.take_abandoned, upload_id, now)
    if taken is None:
        return
    with suppress(StageBusy, StoreUnavailable):
        await ctx.writer.discard(taken.stage_id)
    ending = SessionEnd(upload_id, uploads.lease_of(taken), valid_until=0)
    await ctx.database.write(uploads.remove_upload, ending, now)


def _may_follow(source: FillSource, found: Fill) -> bool:
    """Return True if a fill is for the same repository, or the upstream is known to have the blob.

    Otherwise the upstream of another repository would decide for this one.
    """
    return source.is_known or found.upload.repository_id == source.repository_id


def _is_free(ctx: ServiceContext, found: Fill) -> bool:
    """Return True if no worker is fetching the blob: the last one released it, or died."""
    upload = found.upload
    if ctx.leases.is_writing(upload.id):
        return False
    return ctx.leases.is_abandoned(upload) or has_run_out(upload, ctx.clock())


async def follow(ctx: ServiceContext, source: FillSource, feed: Feed) -> bool:
    """Feed readers with bytes that another worker is fetching; return True once all are verified.

    Return False if the other worker has stopped for any reason. Raise `KmsKeyDeleted`,
    `KmsKeyDisabled` or `Unavailable` if the staged bytes cannot be decrypted, `StoreUnavailable` if
    they cannot be read.
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


async def _find(ctx: ServiceContext, source: FillSource) -> Fill | None:
    """Return the fill if another worker is fetching it, and this repository may use it."""
    found = await ctx.database.read(fills.find_fill, source.account_id, source.key)
    if found is None or _is_free(ctx, found) or not _may_follow(source, found):
        return None
    return found


def _is_copied(upload: Upload) -> bool:
    """Return True while a worker that took over the fill is still copying the bytes.

    The copy may have fewer bytes so far, and a reader that is further ahead would be cut off.
    """
    return upload.stage_id == upload.id and upload.lease_token != FIRST_TOKEN


async def _feed(ctx: ServiceContext, source: FillSource, feed: Feed, found: Fill) -> bool:
    upload = found.upload
    stage = StagedFill(upload.stage_id, await _open_key(ctx, upload))
    async with aclosing(await ctx.reader.open_staged(*stage)) as opened:
        # Recorded bytes are in the staged file, where readers read them themselves.
        feed.open(found.size, stage, upload.received_bytes)
        reading = asyncio.create_task(_read(opened, feed, upload.received_bytes))
        try:
            while not (await asyncio.wait((reading,), timeout=_WATCH_SECONDS))[0]:
                now = await _find(ctx, source)
                if now is not None and now.upload.stage_id == upload.stage_id:
                    continue
                # The fill has ended: either the rest is still being read, or it has failed.
                if not await _is_done(reading, feed):
                    return False
            await reading
            return True
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError, StagedDropped, StoreUnavailable):
                await reading


async def _is_done(reading: asyncio.Task[None], feed: Feed) -> bool:
    """Wait for `reading` while bytes arrive; return True once it ends, False if no more arrive."""
    before = None
    while feed.end != before:
        before = feed.end
        if (await asyncio.wait((reading,), timeout=_WATCH_SECONDS))[0]:
            return True
    return False


async def _read(opened: OpenObject, feed: Feed, offset: int) -> None:
    """Feed bytes as they grow, until they have become an object, and so are verified."""
    async for part in opened.stream(offset):
        feed.append(part)
        offset += len(part)
        feed.record_staged_bytes(offset)


async def _open_key(ctx: ServiceContext, upload: Upload) -> DataKey | None:
    if upload.kms_key_id is None or upload.wrapped_data_key is None:
        return None
    if ctx.data_keys is None:
        raise StoreUnavailable("the blob is sealed, and this process has no keys")
    wrapped = upload.kms_key_id, upload.wrapped_data_key
    return await ctx.data_keys.open(upload.account_id, *wrapped, upload.stage_id)

"""Get a blob: fetch it, or follow the worker that does; if that dies, take over."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final

from cloudcore.db.base import Connection
from cloudcore.errors import PlatformError, Unavailable
from registry.blobstore.base import StageBusy
from registry.errors import BlobUnknown, DigestMismatch, StoreUnavailable, UploadBusy, UploadUnknown
from registry.metadata.blobs import objects, uploads
from registry.metadata.blobs.uploads import Ending
from registry.metadata.pull_through import fills as rows
from registry.metadata.pull_through.cached_blobs import links_of_rule
from registry.metadata.pull_through.fills import Fill
from registry.metadata.pull_through.rules import find_rule_for
from registry.services.blobs.upload_leases import UploadLeaseLost
from registry.services.context import ServiceContext
from registry.services.pull_through.feed import Feed
from registry.services.pull_through.fill_pace import FillUnread
from registry.services.pull_through.fill_source import Source
from registry.services.pull_through.filling import AlreadyThere, FillTaken, fill
from registry.services.pull_through.following import follow, is_free, may_follow
from registry.services.pull_through.remote import as_error
from registry.services.pull_through.upstream_states import record_failure
from registry.upstream.base import NotUpstream, UpstreamBroken, UpstreamFailed

_ROUNDS: Final = 20
"""How often the worker that fetches may change before readers are told to come again."""
_PAUSE_SECONDS: Final = 0.05

_log = logging.getLogger(__name__)


async def bring_blob(ctx: ServiceContext, source: Source, feed: Feed) -> None:
    """Bring a blob to its readers, until all bytes are there or no more can be done; never raise.

    If another worker has brought them already, the feed finishes without any.
    """
    failure: Exception = Unavailable("the blob could not be fetched; try again", retry_after=5)
    try:
        if await _is_there(ctx, source, feed):
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


async def _note(ctx: ServiceContext, source: Source, failure: UpstreamFailed) -> None:
    """Count a fault of the upstream that was found once all its bytes had come."""
    with suppress(Unavailable):  # readers are told all the same
        rule_id = source.remote.rule_id
        await ctx.database.write_relaxed(record_failure, rule_id, failure, ctx.clock())


async def _is_there(ctx: ServiceContext, source: Source, feed: Feed) -> bool:
    """Return True once the bytes are there and right; False if workers take turns without end."""
    for _ in range(_ROUNDS):
        found = await ctx.database.read(rows.find_fill, source.account_id, source.key)
        try:
            if found is not None and not is_free(ctx, found):
                if not may_follow(source, found):
                    source = await _confirmed(ctx, source)
                if await follow(ctx, source, feed) or await _has_come(ctx, source, feed):
                    return True
                continue
            if found is not None and not _may_go_on(ctx, source, found):
                await _end(ctx, found)
                found = None
            await fill(ctx, source, feed, found)
        except AlreadyThere:
            if await _has_come(ctx, source, feed):
                return True
        except (FillTaken, UploadBusy, UploadUnknown):
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            return True
    return False


async def _confirmed(ctx: ServiceContext, source: Source) -> Source:
    """Return the source of a blob that its upstream has, as that says.

    Raises:
        NotUpstream, UpstreamFailed: it does not, or gave no usable answer.

    """
    assert ctx.upstream is not None
    await ctx.upstream.head_blob(source.remote, source.digest)
    return source._replace(is_known=True)


async def _has_come(ctx: ServiceContext, source: Source, feed: Feed) -> bool:
    """Return True if the blob is there by now; readers then get the rest of it from the store.

    What they have had may be of a fill that was given up. Unless it is of these very bytes, it is
    taken back.
    """
    stored_id = await ctx.database.read(_held_as, source)
    if stored_id is None:
        return False
    if feed.stage is None or feed.stage.stage_id != stored_id:
        feed.open(feed.size, None)
    return True


def _held_as(tx: Connection, source: Source) -> str | None:
    """Return the id of the blob's bytes if the repository may have them, and they are undamaged.

    It may if it has them, or if another one of its rule has and the upstream is known to have it.
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


def _may_go_on(ctx: ServiceContext, source: Source, found: Fill) -> bool:
    """Return True if a fill that nobody has is one for the same repository, and has not expired."""
    is_same = found.upload.repository_id == source.repository_id
    return is_same and found.expires_at > ctx.clock()


async def _end(ctx: ServiceContext, found: Fill) -> None:
    """End a fill that nobody has; do nothing if another worker was faster.

    Its bytes go first, so that what a crash leaves is ended when it expires.
    """
    upload_id, now = found.upload.id, ctx.clock()
    taken = await ctx.database.write(ctx.leases.take_abandoned, upload_id, now)
    if taken is None:
        return
    with suppress(StageBusy, StoreUnavailable):
        await ctx.writer.discard(taken.stage_id)
    ending = Ending(upload_id, uploads.lease_of(taken), valid_until=0)
    await ctx.database.write(uploads.remove_upload, ending, now)

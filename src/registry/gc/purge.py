"""Purge expired rows: deleted tags, images and repositories, tag events, idle uploads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.jobs.runs import remove_runs
from registry.blobstore.base import StageBusy
from registry.errors import StoreUnavailable
from registry.metadata.blobs import uploads
from registry.metadata.collector.collection import condemn, lock_objects
from registry.metadata.images.manifests import remove_body
from registry.metadata.images.tombstones import (
    Tombstone,
    forget_tombstone,
    lock_expired_tombstones,
    objects_of,
    tombstones_of,
)
from registry.metadata.repositories import deleted as rows
from registry.metadata.repositories.repository import Repository
from registry.metadata.tags.deleted import forget_deleted_tags
from registry.metadata.tags.history import forget_tag_events, remove_tag_events
from registry.services.blobs.upload_ids import lowest_id
from registry.services.blobs.upload_sessions import ending_of
from registry.services.context import ServiceContext
from registry.services.images.deletion import remove_unlisted

_BATCH: Final = 50
_HISTORY: Final = 365 * 24 * 3600 * MICROSECONDS
"""Age in microseconds at which the event of a tag is deleted."""
_SESSIONS: Final = 100
_EVENTS: Final = 500
_GRACE: Final = 3600 * MICROSECONDS
"""Microseconds after a repository's deletion until no request is running that still found it."""


async def purge_tombstones(ctx: ServiceContext) -> int:
    """Delete expired tombstones; return their number. The collector deletes the bytes later."""
    gone = 0
    while removed := await ctx.database.write(_purge_batch, ctx.clock()):
        gone += removed
    return gone


async def forget_tag_history(ctx: ServiceContext) -> None:
    """Delete the tag events that are older than a year."""
    while await ctx.database.write_relaxed(forget_tag_events, ctx.clock() - _HISTORY, _BATCH):
        pass


def remove_tombstones(tx: Connection, tombstones: Sequence[Tombstone], now: int) -> int:
    """Delete tombstones, and manifest bodies that nothing else needs; condemn their objects.

    Return the number of tombstones.
    """
    held: defaultdict[str, set[str]] = defaultdict(set)
    for tombstone in tombstones:
        held[tombstone.account_id].update(objects_of(tx, tombstone.id))
    for account_id in sorted(held):
        lock_objects(tx, account_id, held[account_id])
    for tombstone in tombstones:
        forget_tombstone(tx, tombstone)
        remove_body(tx, tombstone.account_id, tombstone.digest)
    for account_id, object_ids in held.items():
        condemn(tx, account_id, object_ids, now)
    return len(tombstones)


def _purge_batch(tx: Connection, now: int) -> int:
    return remove_tombstones(tx, lock_expired_tombstones(tx, now, _BATCH), now)


async def purge_deleted_tags(ctx: ServiceContext) -> None:
    """Delete the expired rows of deleted tags; their history stays."""
    while await ctx.database.write_relaxed(forget_deleted_tags, ctx.clock(), _BATCH):
        pass


async def discard_expired_uploads(ctx: ServiceContext) -> int:
    """End every expired upload session; return the number ended.

    Sessions that a request is writing to are skipped: the request will extend them. The lease is
    taken first, so that an earlier holder of the lease can write no row. The bytes are deleted
    before the row, so that after a crash the next run ends the session. Two kinds of bytes stay
    without a row, until the orphan scan sets them aside: bytes that already became an object, which
    a later state of the database may use, and bytes that an earlier holder has open.

    Raise `StoreUnavailable` if the store failed for some sessions, after all others were tried.
    """
    discarded = 0
    refusal: StoreUnavailable | None = None
    while True:
        expired = await ctx.database.read(uploads.expired_uploads, ctx.clock(), _SESSIONS)
        ended = 0
        for upload_id in expired:
            try:
                ended += await _discard(ctx, upload_id)
            except StoreUnavailable as error:
                refusal = error
        discarded += ended
        if ended < _SESSIONS:
            break
    if refusal is not None:
        raise refusal
    return discarded


async def forget_ended_uploads(ctx: ServiceContext) -> int:
    """Delete the records of ended sessions whose ids have expired; return their number."""
    before = lowest_id(ctx.clock() - ctx.limits.upload_idle)
    total = 0
    while forgotten := await ctx.database.write_relaxed(uploads.forget_ended, before, _SESSIONS):
        total += forgotten
    return total


async def _discard(ctx: ServiceContext, upload_id: str) -> bool:
    """End one upload session; return False if it is in use or has already ended."""
    taken = await ctx.database.write_relaxed(ctx.leases.take_expired, upload_id, ctx.clock())
    if taken is None:
        return False
    if taken.body is None:
        with suppress(StageBusy):
            await ctx.writer.discard(taken.stage_id)
    ending = ending_of(ctx, upload_id, uploads.lease_of(taken))
    return await ctx.database.write_relaxed(uploads.remove_upload, ending, ctx.clock())


async def purge_deleted_repositories(ctx: ServiceContext) -> int:
    """Empty and delete repositories that are no longer restorable; return the number deleted.

    The collector deletes their bytes. A repository with open uploads keeps its row until
    `discard_expired_uploads` has ended them.
    """
    gone = 0
    after = (0, "")
    while deleted := await ctx.database.read(rows.list_purgeable, ctx.clock(), after, _BATCH):
        for repository in deleted:
            while await ctx.database.write(_purge_part, repository.id, ctx.clock()):
                pass
            if repository.deleted_at + _GRACE <= ctx.clock():
                gone += await ctx.database.write(_remove, repository.id)
        after = (deleted[-1].restorable_until, deleted[-1].id)
    return gone


def _remove(tx: Connection, repository_id: str) -> bool:
    """Delete the row of an empty deleted repository, and its runs; return False if not empty."""
    is_gone = rows.remove_repository(tx, repository_id)
    if is_gone:
        remove_runs(tx, repository_id)
    return is_gone


def _purge_part(tx: Connection, repository_id: str, now: int) -> bool:
    """Delete a batch of a repository's content; return True if more may be left."""
    repository = rows.lock_purgeable(tx, repository_id, now)
    if repository is None:
        return False
    if remove_tombstones(tx, tombstones_of(tx, repository_id, _BATCH), now):
        return True
    roots = rows.root_manifests(tx, repository_id, _BATCH)
    if roots:
        remove_unlisted(tx, repository, roots, now)
    return (
        bool(roots)
        or _unlink(tx, repository, now)
        or remove_tag_events(tx, repository_id, _EVENTS) > 0
    )


def _unlink(tx: Connection, repository: Repository, now: int) -> bool:
    """Unlink a batch of blobs from a repository without manifests; return False if it had none."""
    links = rows.list_links(tx, repository.id, _BATCH)
    object_ids = [link.object_id for link in links]
    lock_objects(tx, repository.account_id, object_ids)
    rows.unlink_blobs(tx, repository.id, links)
    condemn(tx, repository.account_id, object_ids, now)
    return bool(links)

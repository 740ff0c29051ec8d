"""Purge deleted repositories that are no longer restorable, in batches."""

from __future__ import annotations

from typing import Final

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.jobs.runs import remove_runs
from registry.gc.purge.images import remove_tombstones
from registry.metadata.collector.collection import condemn, lock_objects
from registry.metadata.images.tombstones import tombstones_of
from registry.metadata.repositories import purge
from registry.metadata.repositories.live import Repository
from registry.metadata.tags.history import remove_tag_events
from registry.services.context import ServiceContext
from registry.services.images.deletion import remove_unlisted

_BATCH: Final = 50
_EVENTS: Final = 500
_GRACE: Final = 3600 * MICROSECONDS
"""Microseconds after which no request still runs that found the repository before its deletion."""


async def purge_deleted_repositories(ctx: ServiceContext) -> int:
    """Empty every repository that is no longer restorable; return how many rows were deleted.

    The collector deletes their bytes. A repository with open uploads keeps its row until
    `discard_expired_uploads` has ended them.
    """
    gone = 0
    after = (0, "")
    while deleted := await ctx.database.read(purge.list_deleted, ctx.clock(), after, _BATCH):
        for repository in deleted:
            while await ctx.database.write(_purge_batch, repository.id, ctx.clock()):
                pass
            if repository.deleted_at + _GRACE <= ctx.clock():
                gone += await ctx.database.write(_remove, repository.id)
        after = (deleted[-1].restorable_until, deleted[-1].id)
    return gone


def _remove(tx: Connection, repository_id: str) -> bool:
    """Delete the row of a deleted repository, and its runs; return False if it is not empty."""
    is_gone = purge.remove_repository(tx, repository_id)
    if is_gone:
        remove_runs(tx, repository_id)
    return is_gone


def _purge_batch(tx: Connection, repository_id: str, now: int) -> bool:
    """Delete a batch of tombstones, manifests, links or events; return True if more may be left."""
    repository = purge.lock_deleted(tx, repository_id, now)
    if repository is None:
        return False
    if remove_tombstones(tx, tombstones_of(tx, repository_id, _BATCH), now):
        return True
    roots = purge.root_manifests(tx, repository_id, _BATCH)
    if roots:
        remove_unlisted(tx, repository, roots, now)
    return (
        bool(roots)
        or _unlink(tx, repository, now)
        or remove_tag_events(tx, repository_id, _EVENTS) > 0
    )


def _unlink(tx: Connection, repository: Repository, now: int) -> bool:
    """Unlink a batch of blobs of a repository without manifests; return True if there were any."""
    links = purge.list_links(tx, repository.id, _BATCH)
    object_ids = [link.object_id for link in links]
    lock_objects(tx, repository.account_id, object_ids)
    purge.unlink_blobs(tx, repository.id, links)
    condemn(tx, repository.account_id, object_ids, now)
    return bool(links)

"""Deleted repositories: once they cannot be restored, their contents go here, batch by batch."""

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
"""A request that found the repository before it was deleted is over by then."""


async def purge_deleted_repositories(ctx: ServiceContext) -> int:
    """Empty every repository whose restoration is over; return how many are gone altogether.

    Bytes are left to the collector. Open uploads are left to `discard_expired_uploads`, and
    while there are any the repository's row stays.
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
    """Remove the row of a deleted repository that holds nothing, and the runs over it."""
    is_gone = purge.remove_repository(tx, repository_id)
    if is_gone:
        remove_runs(tx, repository_id)
    return is_gone


def _purge_batch(tx: Connection, repository_id: str, now: int) -> bool:
    """Take some tombstones, or manifests, or blobs, or else history; say if there may be more."""
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
    """Take some blobs from a repository without manifests, and say whether there were any."""
    links = purge.list_links(tx, repository.id, _BATCH)
    object_ids = [link.object_id for link in links]
    lock_objects(tx, repository.account_id, object_ids)
    purge.unlink_blobs(tx, repository.id, [link.digest for link in links])
    condemn(tx, repository.account_id, object_ids, now)
    return bool(links)

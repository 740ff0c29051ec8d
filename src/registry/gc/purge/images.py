"""Purge deleted images that are no longer restorable, and old events of tags."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from registry.metadata.collector.collection import condemn, lock_objects
from registry.metadata.images.manifests import remove_body
from registry.metadata.images.tombstones import (
    Tombstone,
    forget_tombstone,
    lock_expired_tombstones,
    objects_of,
)
from registry.metadata.tags.history import forget_tag_events
from registry.services.context import ServiceContext

_BATCH: Final = 50
_HISTORY: Final = 365 * 24 * 3600 * MICROSECONDS
"""Microseconds for which a tag's event is kept."""


async def purge_tombstones(ctx: ServiceContext) -> int:
    """Delete the expired tombstones; return how many. The collector deletes their bytes."""
    gone = 0
    while removed := await ctx.database.write(_purge_batch, ctx.clock()):
        gone += removed
    return gone


async def forget_tag_history(ctx: ServiceContext) -> None:
    """Delete the events of tags that are older than a year."""
    while await ctx.database.write_relaxed(forget_tag_events, ctx.clock() - _HISTORY, _BATCH):
        pass


def remove_tombstones(tx: Connection, tombstones: Sequence[Tombstone], now: int) -> int:
    """Delete tombstones and the manifests' bytes that nothing else needs; condemn their objects.

    Return how many tombstones there were.
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

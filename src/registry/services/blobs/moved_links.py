"""What is left behind when a link is moved to another object or KMS key."""

from __future__ import annotations

from cloudcore.db.base import Connection
from registry.metadata.blobs.objects import Target
from registry.metadata.blobs.wrap_removal import drop_unused_wraps
from registry.metadata.collector.collection import condemn, lock_objects


def leave(tx: Connection, account_id: str, before: Target, after: Target, now: int) -> None:
    """Drop the wrap and condemn the object that a link named before, if nothing needs them now."""
    if before.object_id is None or before == after:
        return
    lock_objects(tx, account_id, [before.object_id])
    drop_unused_wraps(tx, account_id, [before.object_id])
    condemn(tx, account_id, [before.object_id], now)

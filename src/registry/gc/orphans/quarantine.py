"""Orphans: stored files that were set aside because they had no row.

They are deleted after `gc_orphan_seconds` if they still have none. An orphan that has a row, as
after restoring the right database, is put back.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from registry.blobstore.base import BlobSweeper, DeletionsHeld, Orphan
from registry.errors import StoreUnavailable
from registry.gc.generations import DatabaseWentBack, check_generation
from registry.metadata.collector import audit
from registry.services.context import ServiceContext

_BATCH: Final = 500

_log = logging.getLogger(__name__)


async def list_orphans(sweeper: BlobSweeper) -> Sequence[Orphan]:
    """Return every orphan, the oldest first."""
    return sorted(
        [orphan async for orphan in sweeper.list_orphans()],
        key=lambda orphan: (orphan.set_aside_at, orphan.object_id),
    )


async def take_back_owned(ctx: ServiceContext, sweeper: BlobSweeper) -> int:
    """Put back every orphan that has a row; return how many.

    Log those that the store fails to put back, and go on with the others.
    """
    orphans = await list_orphans(sweeper)
    count = failed = 0
    for start in range(0, len(orphans), _BATCH):
        batch = [orphan.object_id for orphan in orphans[start : start + _BATCH]]
        for object_id in await ctx.database.read(audit.owned, batch):
            try:
                count += await sweeper.take_back(object_id)
            except StoreUnavailable as error:
                failed, refusal = failed + 1, error
    if failed:
        _log.error("%d stored files that rows own could not be put back: %s", failed, refusal)
    if count:
        _log.warning("put back %d stored files that had been set aside: rows own them", count)
    return count


async def remove_overdue(ctx: ServiceContext, sweeper: BlobSweeper) -> int:
    """Delete the orphans that were set aside long enough ago and have no row; return how many.

    Delete nothing if the database is not the one last used with the blobs. Log those that the store
    fails to delete, and go on with the others.
    """
    before = ctx.clock() - ctx.delays.orphan
    overdue = [each for each in await list_orphans(sweeper) if each.set_aside_at <= before]
    if not overdue:
        return 0
    try:
        await check_generation(ctx, sweeper)
    except DatabaseWentBack as error:
        _log.error("%s", error)
        return 0
    count = failed = 0
    for start in range(0, len(overdue), _BATCH):
        batch = overdue[start : start + _BATCH]
        owned = await ctx.database.read(audit.owned, [orphan.object_id for orphan in batch])
        for orphan in batch:
            if orphan.object_id in owned:
                continue
            try:
                await sweeper.delete_orphan(orphan)
                count += 1
            except DeletionsHeld:
                return count  # a turn after the backup goes on
            except StoreUnavailable as error:
                failed, refusal = failed + 1, error
    if failed:
        _log.error("%d stored files that belong to no row cannot be deleted: %s", failed, refusal)
    if count:
        _log.warning("deleted %d stored files that had been set aside and belong to no row", count)
    return count


async def tend_orphans(ctx: ServiceContext, sweeper: BlobSweeper) -> None:
    """Put back the orphans that have a row, and delete the others when their time is over."""
    await take_back_owned(ctx, sweeper)
    await remove_overdue(ctx, sweeper)

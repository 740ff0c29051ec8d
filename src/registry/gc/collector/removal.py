"""Removal: when their quarantine is over, delete the bytes of objects, then their rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cloudcore.db.base import Connection
from cloudcore.jobs.runs import Progress, Run, add_run_fault, progress_run
from registry.blobstore.base import BlobSweeper, Deleted, DeletionsHeld
from registry.metadata.collector import collection
from registry.services.context import ServiceContext

_BATCH: Final = 100


async def remove(sweeper: BlobSweeper, ctx: ServiceContext, run: Run) -> bool:
    """Delete the bytes of a batch of swept objects; return True if there may be more.

    The begin of the removal is committed before the first file is deleted, and the rows are deleted
    after the last, so the next run continues after a crash. The bytes of inline objects go with
    their rows. A client that has an object open reads
    it to its end. While a backup is under way nothing is deleted, and the rows stay.

    Raises:
        StoreUnavailable: the store failed for some of them; the next run tries these again.

    """
    now = ctx.clock()
    before = now - ctx.delays.quarantine
    found = await ctx.database.write(collection.begin_removal, run.account_id, before, now, _BATCH)
    if found:
        ids = [each.stored_id for each in found]
        deleted = await sweeper.delete([each.stored_id for each in found if not each.is_inline])
        if isinstance(deleted.refusal, DeletionsHeld):  # no fault: a run after the backup goes on
            return False
        inline = [each.stored_id for each in found if each.is_inline]
        deleted = deleted._replace(object_ids=[*inline, *deleted.object_ids])
        await ctx.database.write(_forget, run, ids, deleted, ctx.clock())
        if deleted.refusal is not None:
            raise deleted.refusal
    return len(found) == _BATCH


def _forget(tx: Connection, run: Run, ids: Sequence[str], deleted: Deleted, now: int) -> None:
    gone = collection.finish_removal(tx, deleted.object_ids)
    progress = Progress({"removed": gone.blobs, "freed_bytes": gone.stored_bytes})
    progress_run(tx, run.id, progress)
    if deleted.refusal is None:
        return
    for object_id in sorted(set(ids).difference(deleted.object_ids)):
        add_run_fault(
            tx, run.id, "STORE_UNAVAILABLE", deleted.refusal.message, now, subject=object_id
        )

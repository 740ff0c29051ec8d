"""Removal: bytes whose quarantine is over go, and then the row that remembered them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from cloudcore.db.base import Connection
from registry.blobstore.base import BlobSweeper
from registry.errors import StoreUnavailable
from registry.metadata.collector import collection
from registry.metadata.collector import runs as gc_runs
from registry.metadata.collector.runs import Progress, Run
from registry.services.context import ServiceContext

_BATCH: Final = 100


async def remove(sweeper: BlobSweeper, ctx: ServiceContext, run: Run) -> bool:
    """Remove the bytes of a batch of swept objects, and say whether there may be more.

    That they are given up is committed before the first is deleted, and they are forgotten after
    the last: a crash in between leaves them to the next run. Whoever reads one has it open, and
    reads to the end.

    Raises:
        StoreUnavailable: the medium refused for some of them; the next run tries these again.

    """
    now = ctx.clock()
    before = now - ctx.delays.quarantine
    ids = await ctx.database.write(collection.begin_removal, run.account_id, before, now, _BATCH)
    if ids:
        deleted, refusal = await asyncio.to_thread(_delete, sweeper, ids)
        await ctx.database.write(_forget, run, deleted)
        if refusal is not None:
            raise refusal
    return len(ids) == _BATCH


def _delete(sweeper: BlobSweeper, ids: Sequence[str]) -> tuple[list[str], StoreUnavailable | None]:
    """Return which bytes are gone, and why others are not: one bad file keeps no other."""
    deleted: list[str] = []
    refusal = None
    for object_id in ids:
        try:
            sweeper.delete(object_id)
        except StoreUnavailable as error:
            refusal = error
        else:
            deleted.append(object_id)
    return deleted, refusal


def _forget(tx: Connection, run: Run, ids: Sequence[str]) -> None:
    gone = collection.finish_removal(tx, ids)
    progress = Progress(removed=gone.blobs, freed_bytes=gone.stored_bytes)
    gc_runs.advance_run(tx, run.account_id, run.id, progress)

"""Removal: bytes whose quarantine is over go, and then the row that remembered them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from cloudcore.db.base import Connection
from cloudcore.jobs.runs import Progress, Run, add_run_fault, progress_run
from registry.blobstore.base import BlobSweeper
from registry.errors import StoreUnavailable
from registry.metadata.collector import collection
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
        deleted, refusals = await asyncio.to_thread(_delete, sweeper, ids)
        await ctx.database.write(_forget, run, deleted, refusals, ctx.clock())
        if refusals:
            raise list(refusals.values())[-1]
    return len(ids) == _BATCH


def _delete(
    sweeper: BlobSweeper, ids: Sequence[str]
) -> tuple[list[str], dict[str, StoreUnavailable]]:
    """Return which bytes are gone, and why others are not: one bad file keeps no other."""
    deleted: list[str] = []
    refusals: dict[str, StoreUnavailable] = {}
    for object_id in ids:
        try:
            sweeper.delete(object_id)
        except StoreUnavailable as error:
            refusals[object_id] = error
        else:
            deleted.append(object_id)
    return deleted, refusals


def _forget(
    tx: Connection,
    run: Run,
    ids: Sequence[str],
    refusals: Mapping[str, StoreUnavailable],
    now: int,
) -> None:
    gone = collection.finish_removal(tx, ids)
    progress = Progress({"removed": gone.blobs, "freed_bytes": gone.stored_bytes})
    progress_run(tx, run.id, progress)
    for object_id, error in refusals.items():
        add_run_fault(tx, run.id, "STORE_UNAVAILABLE", error.message, now, subject=object_id)

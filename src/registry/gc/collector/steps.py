"""A run of the collector over an account, as a job: phases of many batches.

Each batch is one transaction that also updates the counts in the run's row, so if a worker dies,
another repeats at most one batch. Safety does not depend on delays, which may all be 0: rows are
locked, and foreign keys refuse (`registry.metadata.collector.collection`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from cloudcore.db.base import Connection
from cloudcore.errors import Unavailable
from cloudcore.jobs.kinds import Done, JobKind, Next, StepFailed
from cloudcore.jobs.queue import Job
from cloudcore.jobs.run_kinds import run_kind
from cloudcore.jobs.runs import Progress, Run, progress_run
from registry.blobstore.base import BlobSweeper
from registry.counted import FREED_BYTES
from registry.errors import StoreUnavailable
from registry.gc.collector.consistency_check import IndexIncomplete
from registry.gc.collector.mark import mark
from registry.gc.collector.removal import remove
from registry.gc.collector.sweep import sweep
from registry.gc.generations import DatabaseWentBack, check_generation
from registry.services.audit import record_run
from registry.services.collector_runs import KIND
from registry.services.context import ServiceContext
from registry.services.run_log import log_end

_DELETIONS: Final = ("unlinked", "condemned", "swept", "removed")
_BATCHES: Final = 20
"""Batches of a step; after it, other jobs of the worker get their turn."""
_REST: Final = 3
"""Pause after a batch, as a multiple of the batch's time. Pushes need the same disk and, on SQLite,
the same writer: without pauses, they take three times as long."""
_LONGEST_REST: Final = 5.0
"""Longest pause, in seconds."""

Phase = Callable[[ServiceContext, Run], Awaitable[bool]]
"""Do one batch; return True if there may be more."""


def collection_kind(ctx: ServiceContext, sweeper: BlobSweeper) -> JobKind:
    """Return the job kind of the collector, which alone gets the `sweeper` that deletes bytes."""
    step = partial(_step, ctx, sweeper)
    return run_kind(
        KIND,
        step,
        database=ctx.database,
        clock=ctx.clock,
        ended=partial(_end, ctx),
        ending=partial(_record_end, ctx),
    )


def phases_of(sweeper: BlobSweeper) -> Sequence[Phase]:
    """Return the phases of a run, in order."""
    # Removal also comes first: it makes room on a full disk before the other phases write rows.
    return partial(_make_room, sweeper), mark, sweep, partial(remove, sweeper)


async def _make_room(sweeper: BlobSweeper, ctx: ServiceContext, run: Run) -> bool:
    """Remove a batch as `remove` does; if the store fails, leave the rest to the last phase.

    Otherwise one file that can never be deleted would keep every run from the phases between.
    """
    try:
        return await remove(sweeper, ctx, run)
    except StoreUnavailable:
        return False


async def _step(ctx: ServiceContext, sweeper: BlobSweeper, run: Run, job: Job) -> Next | Done:
    """Do some batches of the run's current phase.

    Raises:
        StepFailed: the store or the database is unavailable, or nothing may be collected.

    """
    number = 0 if job.cursor is None else msgspec.convert(job.cursor, int)
    phases = phases_of(sweeper)
    try:
        await check_generation(ctx, sweeper)
        for _ in range(_BATCHES):
            begun = time.monotonic()
            if not await phases[number](ctx, run):
                number += 1
                break
            await asyncio.sleep(min(_REST * (time.monotonic() - begun), _LONGEST_REST))
    except StoreUnavailable as error:
        raise StepFailed("STORE_UNAVAILABLE", error.message) from error
    except Unavailable as error:
        raise StepFailed("SERVICE_UNAVAILABLE", error.message) from error
    except IndexIncomplete as error:
        told = f"{error}; nothing was collected by it. Run 'entrepot fsck'"
        raise StepFailed("INDEX_INCOMPLETE", told, is_permanent=True) from error
    except DatabaseWentBack as error:
        raise StepFailed("DATABASE_WENT_BACK", str(error), is_permanent=True) from error
    change = partial(_progress, run, Progress({}, done=number, total=len(phases)))
    return Next(number, change) if number < len(phases) else Done(change)


def _progress(run: Run, progress: Progress, tx: Connection) -> None:
    progress_run(tx, run.id, progress)


def _end(ctx: ServiceContext, run: Run) -> None:
    log_end(ctx, "collection", run, **run.counts)
    ctx.count(FREED_BYTES, run.counts["freed_bytes"])


def _record_end(ctx: ServiceContext, tx: Connection, run: Run, job: Job) -> None:
    if ctx.audits:
        region = ctx.registry_host.region
        crn = f"crn:registry:{region}:{run.account_id}:garbage-collection-run/{run.id}"
        record_run("registry:CollectGarbage", crn, _DELETIONS, tx, run, job)

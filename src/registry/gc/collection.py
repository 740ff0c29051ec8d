"""A run of the collector over an account: a job of several phases, in many batches.

Each batch is one transaction that also updates the counts in the run's row, so if a worker dies,
another repeats at most one batch. Safety depends on locked rows and foreign keys
(`registry.metadata.collector.collection`), not on delays, which may all be 0.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from cloudcore.db.base import Connection, ConstraintViolated
from cloudcore.errors import Unavailable
from cloudcore.jobs.kinds import Done, JobKind, Next, StepFailed
from cloudcore.jobs.queue import Job
from cloudcore.jobs.runs import Progress, Run, add_run_fault, progress_run
from registry.blobstore.base import Deleted, DeletionsHeld
from registry.blobstore.store import BlobSweeper
from registry.counters import FREED_BYTES
from registry.errors import StoreUnavailable
from registry.gc.database_rollback import DatabaseWentBack, check_generation
from registry.gc.manifest_check import IndexIncomplete, check_repository
from registry.metadata.collector import collection
from registry.metadata.collector.collection import UnreferencedLink
from registry.services.collector_runs import RUNS
from registry.services.context import ServiceContext

_BATCHES: Final = 20
"""Batches of a step; after a step, other jobs of the worker get their turn."""
_REST: Final = 3
"""Pause after a batch, as a multiple of the batch's duration. Pushes need the same disk and, on
SQLite, the same writer: without pauses, they take three times as long."""
_LONGEST_REST: Final = 5.0
"""Longest pause, in seconds."""

Phase = Callable[[ServiceContext, Run], Awaitable[bool]]
"""Does one batch; returns True if there may be more."""
_LINKS: Final = 200
_BATCH: Final = 100


def collection_kind(ctx: ServiceContext, sweeper: BlobSweeper) -> JobKind:
    """Return the job kind of the collector, the only job that gets a `sweeper` to delete bytes."""

    def count_freed(run: Run) -> None:
        ctx.count(FREED_BYTES, run.counts["freed_bytes"])

    return RUNS.job_kind(ctx, partial(_step, ctx, sweeper), count_freed)


def phases_of(sweeper: BlobSweeper) -> Sequence[Phase]:
    """Return the phases of a run, in order."""
    # Removal is also the first phase, to make room on a full disk before other phases write rows.
    return partial(_make_room, sweeper), mark, sweep, partial(remove, sweeper)


async def _make_room(sweeper: BlobSweeper, ctx: ServiceContext, run: Run) -> bool:
    """Remove a batch as `remove` does; if the store fails, end the phase without an error.

    Otherwise one file that cannot be deleted would stop every run before the next phases.
    """
    try:
        return await remove(sweeper, ctx, run)
    except StoreUnavailable:
        return False


async def _step(ctx: ServiceContext, sweeper: BlobSweeper, run: Run, job: Job) -> Next | Done:
    """Do some batches of the run's current phase.

    Raise `StepFailed` if the store or database is unavailable, or collecting is not safe now.
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
    progress = Progress({}, done=number, total=len(phases))

    def change(tx: Connection) -> None:
        progress_run(tx, run.id, progress)

    return Next(number, change) if number < len(phases) else Done(change)


async def mark(ctx: ServiceContext, run: Run) -> bool:
    """Delete a batch of unreferenced links; return True if there may be more.

    Links that were touched or referenced since they were listed stay.

    Raise `IndexIncomplete` if manifests contradict their edges, or the `manifest_refs` of links.
    """
    now = ctx.clock()
    before = now - ctx.delays.grace
    links = await ctx.database.read(collection.unreferenced_links, run.account_id, before, _LINKS)
    for repository_id in sorted({link.repository_id for link in links}):
        await ctx.database.read(check_repository, repository_id)
    try:
        await ctx.database.write(_unlink, run, links, before, now)
    except ConstraintViolated:
        raise IndexIncomplete("a manifest references a blob whose reference count is 0") from None
    return len(links) == _LINKS


def _unlink(
    tx: Connection, run: Run, links: Sequence[UnreferencedLink], before: int, now: int
) -> None:
    unlinked = collection.unlink_unreferenced(tx, run.account_id, links, before)
    condemned = collection.condemn(tx, run.account_id, {link.object_id for link in links}, now)
    progress = Progress({"unlinked": unlinked, "condemned": condemned})
    progress_run(tx, run.id, progress)


async def sweep(ctx: ServiceContext, run: Run) -> bool:
    """Sweep a batch of condemned objects; return True if there may be more.

    Objects that are referenced again become live. If an object got a reference that this
    transaction does not see yet, foreign keys refuse to sweep it.

    Raise `IndexIncomplete` if a manifest references an object whose link is lost.
    """
    now = ctx.clock()
    before = now - ctx.delays.condemned
    try:
        return await ctx.database.write(_sweep, run, before, now)
    except ConstraintViolated:
        # A reference was committed between the check and the deletion: the next check sees it.
        await ctx.database.write(_unmark, run, before)
        return True


def _sweep(tx: Connection, run: Run, before: int, now: int) -> bool:
    found = collection.lock_condemned(tx, run.account_id, before, _BATCH)
    unmarked = collection.unmark_referred(tx, run.account_id, [one.id for one in found])
    victims = [one for one in found if one.id not in unmarked]
    needed = collection.unlinked_edge(tx, run.account_id, [one.digest for one in victims])
    if needed is not None:
        raise IndexIncomplete(f"a manifest needs {needed}, which its repository does not link")
    swept = collection.sweep(tx, run.account_id, [one.id for one in victims], now)
    progress_run(tx, run.id, Progress({"swept": swept, "kept": len(unmarked)}))
    return len(found) == _BATCH


def _unmark(tx: Connection, run: Run, before: int) -> None:
    found = collection.lock_condemned(tx, run.account_id, before, _BATCH)
    unmarked = collection.unmark_referred(tx, run.account_id, [one.id for one in found])
    progress_run(tx, run.id, Progress({"kept": len(unmarked)}))


async def remove(sweeper: BlobSweeper, ctx: ServiceContext, run: Run) -> bool:
    """Delete the bytes of a batch of swept objects; return True if there may be more.

    The start of the removal is committed before the first file is deleted, and the rows are deleted
    after the last file, so the next run continues after a crash. The bytes of inline objects are
    deleted with their rows. A client that has an object open can still read all of it. While a
    backup is under way, neither bytes nor rows are deleted.

    Raise `StoreUnavailable` if the store failed for some objects; the next run tries these again.
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

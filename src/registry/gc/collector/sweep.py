"""Sweep: move objects that stayed condemned to the quarantine."""

from __future__ import annotations

from typing import Final

from cloudcore.db.base import Connection, ConstraintViolated
from cloudcore.jobs.runs import Progress, Run, progress_run
from registry.gc.collector.consistency_check import IndexIncomplete
from registry.metadata.collector import collection
from registry.services.context import ServiceContext

_BATCH: Final = 100


async def sweep(ctx: ServiceContext, run: Run) -> bool:
    """Sweep a batch of condemned objects; return True if there may be more.

    Objects that are referenced again become live. Foreign keys refuse to sweep objects whose
    references this transaction does not see yet.

    Raises:
        IndexIncomplete: a manifest references an object whose link is lost.

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

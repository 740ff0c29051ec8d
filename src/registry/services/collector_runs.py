"""Start runs of the collector, on request or on schedule; an account has one run at a time.

A run is a job; its steps are in `registry.gc.collection`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.jobs import runs
from cloudcore.jobs.runs import Run
from registry.metadata.collector import collection
from registry.metadata.collector.collection import Amount
from registry.services.changes import Change
from registry.services.context import ServiceContext
from registry.services.runs import RegistryRuns

KIND: Final = "registry.garbage_collection"
_COUNTS: Final = ("unlinked", "condemned", "swept", "removed", "freed_bytes", "kept")
"""The counters of a run:

- *unlinked*: links removed because no manifest references them
- *condemned*: objects that thereby lost their last link
- *swept*: objects whose rows moved to the quarantine
- *removed*: objects whose bytes were deleted
- *freed_bytes*: the size on disk of the removed objects
- *kept*: condemned objects that are referenced again
"""
RUNS: Final = RegistryRuns(
    KIND,
    words="collection",
    type="garbage-collection-run",
    action="registry:CollectGarbage",
    counts=_COUNTS,
    deletions=_COUNTS[:4],
    kept_days=30,
)
_ACCOUNTS: Final = 500


class Status(NamedTuple):
    """An account's pending work of the collector, by stage, and its last run."""

    unreferenced: Amount
    condemned: Amount
    quarantined: Amount
    is_running: bool
    last_run: Run | None


def start_collection(tx: Connection, account_id: str, run_id: str, change: Change) -> Run:
    """Start a run in an account, or return the running one."""
    return RUNS.start(tx, account_id, None, run_id, change)


def status(tx: Connection, account_id: str) -> Status:
    """Return the state of an account's collection; the cost grows with the objects to collect."""
    (last,) = runs.list_runs(tx, KIND, account_id, "", 1) or (None,)
    return Status(
        unreferenced=collection.measure_stage(tx, account_id, "unreferenced"),
        condemned=collection.measure_stage(tx, account_id, "condemned"),
        quarantined=collection.measure_stage(tx, account_id, "quarantined"),
        is_running=runs.find_running(tx, KIND, account_id) is not None,
        last_run=last,
    )


async def start_due_collections(ctx: ServiceContext) -> int:
    """Start a run in every account that has objects due for collection; return how many started.

    Safe in several processes at once: an account has one run at a time. Each run is started in a
    transaction of its own, so that no writer waits for all of them.
    """
    started = 0
    after = ""
    delays = ctx.delays
    while True:
        now = ctx.clock()
        due = await ctx.database.read(
            collection.accounts_due,
            touched_before=now - delays.grace,
            condemned_before=now - delays.condemned,
            swept_before=now - delays.quarantine,
            after=after,
            limit=_ACCOUNTS,
        )
        for account_id in due:
            run_id = ctx.new_id()
            run = await ctx.database.write(start_collection, account_id, run_id, ctx.change_by(""))
            started += run.id == run_id
        if len(due) < _ACCOUNTS:
            return started
        after = due[-1]

"""Runs of the collector: started by hand or by the clock, one at a time in an account.

A run is a job; what its steps do is the business of `registry.gc`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.jobs import runs
from cloudcore.jobs.runs import NewRun, Run
from registry.metadata.collector import collection
from registry.metadata.collector.collection import Amount
from registry.services.access import repository_crn
from registry.services.changes import Change
from registry.services.context import ServiceContext

KIND: Final = "registry.garbage_collection"
KEPT_SECONDS: Final = 30 * 24 * 3600
"""How long an account's runs are remembered."""
COUNTS: Final = ("unlinked", "condemned", "swept", "removed", "freed_bytes", "kept")
"""What a run counts.

*unlinked*: links that no manifest referenced; *condemned*: objects that lost their last link by
that; *swept*: objects whose rows went to the quarantine; *removed*: objects whose bytes are gone;
*freed_bytes*: of these, on disk; *kept*: condemned objects that something refers to again.
"""
_ACCOUNTS: Final = 500


class Status(NamedTuple):
    """What there is to collect in an account, stage by stage, and what was last done about it."""

    unreferenced: Amount
    condemned: Amount
    quarantined: Amount
    is_running: bool
    last_run: Run | None


def start_run(tx: Connection, account_id: str, run_id: str, act: Change) -> Run:
    """Start a run over an account, or join the one under way, and return it."""
    new = NewRun(
        id=run_id,
        kind=KIND,
        account_id=account_id,
        scope_id=account_id,
        resource=repository_crn(act.site.region, account_id, "*"),
        started_by=act.principal,
        counts=COUNTS,
        kept_seconds=KEPT_SECONDS,
    )
    return runs.start_run(tx, new, act.now)


def status(tx: Connection, account_id: str) -> Status:
    """Return what there is to collect; costs a step for each thing to be collected."""
    (last,) = runs.list_runs(tx, KIND, account_id, "", 1) or (None,)
    return Status(
        unreferenced=collection.measure_unreferenced(tx, account_id),
        condemned=collection.measure_condemned(tx, account_id),
        quarantined=collection.measure_quarantined(tx, account_id),
        is_running=runs.find_running(tx, KIND, account_id) is not None,
        last_run=last,
    )


async def start_due_runs(ctx: ServiceContext) -> int:
    """Start a run over every account of which something is to be collected; return how many.

    Any number of processes may do so at once: an account has one run at a time.
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
            run = await ctx.database.write(start_run, account_id, run_id, ctx.act(""))
            started += run.id == run_id
        if len(due) < _ACCOUNTS:
            return started
        after = due[-1]

"""The collector in a test's own hands: a whole run at once, with the delays the test says."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cloudcore.jobs.runs import Run, end_run, find_run
from registry.blobstore.store import BlobSweeper
from registry.gc.collection import phases_of
from registry.services.collector_runs import KIND, start_collection
from registry.services.context import ServiceContext
from registry.settings.groups import Delays

AT_ONCE: Final = Delays(gc_grace_seconds=0, gc_condemned_seconds=0, gc_quarantine_seconds=0)
"""No delay hides a race."""


def at_once(ctx: ServiceContext) -> ServiceContext:
    """Return the same surroundings, in which the collector waits for nothing."""
    return replace(ctx, delays=AT_ONCE)


async def collect(ctx: ServiceContext, sweeper: BlobSweeper, account_id: str) -> Run:
    """Run the collector over an account from the first phase to the last; return what it did."""
    run = await ctx.database.write(start_collection, account_id, ctx.new_id(), ctx.change_by(""))
    for phase in phases_of(sweeper):
        while await phase(ctx, run):
            pass
    if ended := await ctx.database.write(end_run, run.id, ctx.clock()):
        return ended
    # Another collector shared the run and ended it; with a clock that jumps it may be forgotten.
    return await ctx.database.read(find_run, KIND, account_id, run.id) or run

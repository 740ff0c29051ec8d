"""A worker to be killed: ``python -m tests.integration.lifecycle_worker URL STEPS`` runs policies.

When it has prepared so many steps, and committed all but the last, it says so and waits for death.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

from cloudcore.clock import system_clock, uuid7
from cloudcore.db.opening import open_database
from cloudcore.jobs.kinds import Done, Next
from cloudcore.jobs.queue import Job
from cloudcore.jobs.worker import JobPace, JobWorker
from registry.services.changes import RegistryHost
from registry.services.context import ServiceContext
from registry.services.images.pulls import PullLog
from registry.services.lifecycle.runs import lifecycle_kind
from registry.settings.groups import Limits
from tests.memory_store import MemoryStore

PACE = JobPace(poll_seconds=0.05)


async def main(url: str, steps: int) -> None:
    """Work until killed."""
    database = open_database(url)
    store = MemoryStore()
    ctx = ServiceContext(
        database=database,
        reader=store,
        writer=store,
        clock=system_clock,
        new_id=uuid7,
        limits=Limits(),
        pulls=PullLog(database, system_clock),
        registry_host=RegistryHost("local", "registry.example"),
    )
    kind = lifecycle_kind(ctx)

    prepared = 0

    async def step(job: Job) -> Next | Done:
        nonlocal prepared
        outcome = await kind.step(job)
        prepared += 1
        if prepared == steps:
            sys.stdout.write("waiting\n")
            sys.stdout.flush()
            await asyncio.Event().wait()
        return outcome

    await JobWorker(database, [replace(kind, step=step)], pace=PACE).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))

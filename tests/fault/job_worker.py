"""A worker to be killed: ``python -m tests.fault.job_worker URL``.

It runs jobs that count. It writes a line when it is there, and one for each step it begins.
"""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import suppress

from cloudcore.db.opening import open_database
from cloudcore.jobs.kinds import Done, JobKind, Next
from cloudcore.jobs.queue import Job
from cloudcore.jobs.worker import JobPace, JobWorker
from tests.jobs import COUNT, count_steps

PACE = JobPace(slots=3, lease_seconds=1, poll_seconds=0.1)


def say(line: str) -> None:
    """Write a line at once, to whoever may still read it."""
    with suppress(BrokenPipeError):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


async def step(job: Job) -> Next | Done:
    """Take a while, so that deaths meet every part of a step."""
    say(f"{job.id} {job.cursor}")
    await asyncio.sleep(random.uniform(0, 0.02))
    return await count_steps(job)


async def main(url: str) -> None:
    """Work until killed."""
    database = open_database(url)
    say("ready")
    await JobWorker(database, [JobKind(name=COUNT, step=step, max_attempts=None)], pace=PACE).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""A registry with jobs that count: ``python -m tests.fault.job_registry``.

Arguments: ``dev`` or ``serve``, a data folder, ``working`` or ``stuck``, and seconds between two
looks for work. It writes a line when it is there, and one for each step it begins; stuck, it never
ends a step of those that count. Events are told in a line, too, and delivered to nobody.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from cloudcore.db.base import CommitMark
from cloudcore.family import Family, Runtime
from cloudcore.jobs.kinds import Done, JobKind, Next
from cloudcore.jobs.outbox import DELIVER
from cloudcore.jobs.queue import Job
from cloudcore.jobs.worker import JobPace
from cloudcore.serving.dispatch import Dispatcher
from registry.cli.server.run_server import serve_application
from registry.composition.dev import DEV
from registry.composition.main import Edition, Registry, application
from registry.composition.serve import SERVE
from registry.settings.settings import Settings
from tests.jobs import COUNT, count_steps


def say(line: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def step(job: Job, *, is_stuck: bool) -> Next | Done:
    """Do a step, or stop in it for ever."""
    say(f"step {job.id} {job.cursor}")
    if is_stuck:
        await asyncio.Event().wait()
    return await count_steps(job)


async def deliver(job: Job) -> Done:
    """Say whose events there are."""
    say(f"deliver {job.account_id}")
    return Done()


def create(
    edition: Edition, pace: JobPace, is_stuck: bool, settings: Settings, mark: CommitMark
) -> Dispatcher:
    """Return an application whose worker knows jobs that count, and those of events."""
    kinds = (
        JobKind(name=COUNT, step=partial(step, is_stuck=is_stuck), first_retry_seconds=0.01),
        JobKind(name=DELIVER, step=deliver),
    )
    counting = Family[object](name="test", runs=Runtime(job_kinds=lambda _: kinds))
    others = [
        replace(family, runs=replace(family.runtime, job_kinds=lambda _: ()))
        for family in edition.families
    ]
    families = (*others, counting)
    made = Registry(settings, replace(edition, families=families), pace=pace, mark=mark)
    return application(made)


def main(command: str, data: str, mode: str, poll_seconds: str) -> int:
    """Serve until told to stop."""
    pace = JobPace(slots=2, lease_seconds=1, poll_seconds=float(poll_seconds))
    edition = DEV if command == "dev" else SERVE
    settings = Settings(data=Path(data), port=0)
    return serve_application(
        settings,
        partial(create, edition, pace, mode == "stuck"),
        lambda url: say(f"ready {url}"),
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

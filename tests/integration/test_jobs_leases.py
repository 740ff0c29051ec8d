"""Leases of workers: kept, lost, left by a stop, and raced for."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence

import pytest

from cloudcore.clock import system_clock
from cloudcore.db.base import Database
from cloudcore.db.opening import open_database
from cloudcore.jobs.kinds import Done, JobKind, Next
from cloudcore.jobs.queue import Job, LeaseTerms, lease
from cloudcore.jobs.worker import JobPace, JobWorker
from tests.databases import on_both_databases
from tests.jobs import (
    COUNT,
    COUNTING,
    START,
    Clock,
    Hang,
    all_jobs,
    count_steps,
    enqueue_counts,
    get,
    list_effects,
    running,
    until,
    until_finished,
    with_effects,
)

pytestmark = with_effects


@on_both_databases
async def test_a_lease_is_renewed_while_a_long_step_runs(database: Database) -> None:
    """For more than two leases, under a clock that goes on with each renewal, however late."""
    may_end = asyncio.Event()

    async def step(job: Job) -> Done:
        await may_end.wait()
        return Done()

    clock = Clock()
    [identity] = await database.write(enqueue_counts, 1, 1, START)
    pace = JobPace(lease_seconds=0.3, poll_seconds=0.01)
    async with running(
        JobWorker(database, [JobKind(name=COUNT, step=step)], pace=pace, clock=clock)
    ):

        async def renewed() -> bool:
            return (await get(database, identity)).due_at == clock.now + 300_000

        for _ in range(8):
            await until(renewed)
            clock.pass_seconds(0.1)
        may_end.set()
        await until_finished(database)
    assert (await get(database, identity)).attempts == 1


@on_both_databases
async def test_a_worker_whose_lease_was_taken_ends_its_step(database: Database) -> None:
    """It finds out at the next renewal; the step is cancelled and has no effect."""
    hang = Hang()
    clock = Clock()
    [identity] = await database.write(enqueue_counts, 1, 1, START)
    slow_pace = JobPace(lease_seconds=0.3, poll_seconds=3600)
    slow = JobWorker(database, [JobKind(name=COUNT, step=hang)], pace=slow_pace, clock=clock)
    async with running(slow):
        await hang.begun.wait()
        taken: Sequence[Job] = ()
        while not taken:  # unless it renews at that very moment
            clock.pass_seconds(1)
            terms = LeaseTerms("other", clock.now + 60_000_000, 1, {COUNT})
            taken = await database.write(lease, terms, clock.now)
        await hang.cancelled.wait()
    assert (await get(database, identity)).lease_token == "other"


@on_both_databases
async def test_a_stop_ends_the_step_under_way_and_begins_none(database: Database) -> None:
    at_step, may_end = asyncio.Event(), asyncio.Event()

    async def step(job: Job) -> Next | Done:
        at_step.set()
        await may_end.wait()
        return await count_steps(job)

    jobs = await database.write(enqueue_counts, 2, 3, system_clock())
    worker = JobWorker(database, [JobKind(name=COUNT, step=step)], pace=JobPace(slots=1))
    task = asyncio.create_task(worker.run())
    await at_step.wait()
    worker.stop()
    may_end.set()
    await task
    assert len(await database.read(list_effects)) == 1
    begun, untouched = sorted(
        await database.read(all_jobs), key=lambda job: job.state, reverse=True
    )
    assert (begun.state, begun.cursor, begun.lease_token) == ("running", 1, None)
    assert (untouched.state, untouched.attempts) == ("queued", 0)
    async with running(JobWorker(database, [COUNTING])):  # at once: no lease to wait for
        await until_finished(database)
    assert await database.read(list_effects) == sorted(
        (job, number) for job in jobs for number in range(3)
    )


@on_both_databases
async def test_a_cancelled_worker_leaves_its_job_to_the_end_of_the_lease(
    database: Database,
) -> None:
    hang = Hang()
    clock = Clock()
    [identity] = await database.write(enqueue_counts, 1, 1, START)
    task = asyncio.create_task(
        JobWorker(database, [JobKind(name=COUNT, step=hang)], clock=clock).run()
    )
    await hang.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await get(database, identity)).due_at == START + 60_000_000
    clock.pass_seconds(60)
    async with running(JobWorker(database, [COUNTING], clock=clock)):
        await until_finished(database)
    assert (await get(database, identity)).attempts == 2


@pytest.mark.parametrize("lease_seconds", [60, 0.02])
async def test_racing_workers_commit_each_step_once(
    database: Database, database_url: str, lease_seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    """With leases too short to hold, steps run twice; still each is committed once."""
    runs: Counter[tuple[str, int]] = Counter()

    async def step(job: Job) -> Next | Done:
        runs[job.id, job.cursor or 0] += 1
        outcome = await count_steps(job)
        if lease_seconds < 1:
            await asyncio.sleep(0.002 * (len(runs) % 20))
        return outcome

    with caplog.at_level(logging.CRITICAL, "cloudcore.jobs.worker"):
        other = open_database(database_url)
        jobs = await database.write(enqueue_counts, 40, 3, system_clock())
        pace = JobPace(slots=8, lease_seconds=lease_seconds, poll_seconds=0.01)
        kind = JobKind(name=COUNT, step=step, max_attempts=None)
        async with (
            running(JobWorker(database, [kind], pace=pace)),
            running(JobWorker(other, [kind], pace=pace)),
        ):
            await until_finished(database)
        await other.close()
        assert await database.read(list_effects) == sorted(
            (job, number) for job in jobs for number in range(3)
        )
        assert {job.state for job in await database.read(all_jobs)} == {"succeeded"}
        if lease_seconds > 1:
            assert set(runs.values()) == {1}

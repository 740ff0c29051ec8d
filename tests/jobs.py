"""Jobs whose effects can be counted, on databases of the tests, under a clock that stands still."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text, bindparam, func, insert, select
from sqlalchemy import text as sql

import cloudcore.identity.tables  # noqa: F401 - jobs refer to accounts
from cloudcore.clock import MICROSECONDS, system_clock
from cloudcore.db.base import Connection, Database
from cloudcore.db.rows import columns_of
from cloudcore.db.statement import Statement, listed, text_list
from cloudcore.jobs import queue
from cloudcore.jobs.kinds import Done, JobKind, Next, Step, StepFailed
from cloudcore.jobs.queue import Job, LeaseTerms, NewJob, enqueue, lease
from cloudcore.jobs.tables import jobs
from cloudcore.jobs.worker import JobPace, JobWorker
from registry.metadata.database import migration_connection
from tests.recount import querying

COUNT: Final = "count"
START: Final = 1_700_000_000 * MICROSECONDS

_tables = MetaData()
effects = Table("effects", _tables, Column("job_id", Text), Column("step", Integer))
_ADD: Final = Statement(
    insert(effects).values(job_id=bindparam("job_id"), step=bindparam("step")).inline()
)
_EFFECTS: Final = Statement(select(effects.c.job_id, effects.c.step))
_FIND: Final = Statement(columns_of(jobs, Job._fields).where(jobs.c.id == bindparam("id")))
_JOB_IDS: Final = Statement(select(jobs.c.id).order_by(jobs.c.id))
_BUSY: Final = Statement(
    select(func.count())
    .select_from(jobs)
    .where(
        jobs.c.due_at.is_not(None),
        jobs.c.kind.in_(listed("kinds")),
        jobs.c.lease_token.is_not(None) | (jobs.c.due_at <= bindparam("now")),
    )
)
SWIFT: Final = JobPace(slots=64, poll_seconds=0.01)
_UNFINISHED: Final = Statement(select(jobs.c.id).where(sql("due_at IS NOT NULL")))


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now

    def pass_seconds(self, seconds: float) -> None:
        self.now += int(seconds * MICROSECONDS)


@pytest.fixture
def effects_table(metadata_url: str) -> None:
    """Add the table of effects to the test's database."""
    make_tables(metadata_url)


with_effects = pytest.mark.usefixtures("effects_table")


def make_tables(url: str) -> None:
    """Add the table of effects."""
    with migration_connection(url) as connection:
        _tables.create_all(connection)


def add_effect(job_id: str, step: int, tx: Connection) -> None:
    tx.execute(_ADD, job_id=job_id, step=step)


def list_effects(tx: Connection) -> list[tuple[str, int]]:
    return sorted((row[0], row[1]) for row in tx.rows(_EFFECTS))


def job_ids(tx: Connection) -> list[str]:
    return [row[0] for row in tx.rows(_JOB_IDS)]


def find_job(tx: Connection, job_id: str) -> Job | None:
    row = tx.row(_FIND, id=job_id)
    return queue._job(row) if row else None


def all_jobs(tx: Connection) -> list[Job]:
    return [job for one in job_ids(tx) if (job := find_job(tx, one))]


def unfinished(tx: Connection) -> list[str]:
    return [row[0] for row in tx.rows(_UNFINISHED)]


async def count_steps(job: Job) -> Next | Done:
    """Count to `job.arguments`, one effect to a step; the cursor is how far it is."""
    step = job.cursor or 0
    await asyncio.sleep(0)
    change = partial(add_effect, job.id, step)
    return Done(change) if step + 1 == job.arguments else Next(step + 1, change)


COUNTING: Final = JobKind(name=COUNT, step=count_steps)


class Hang:
    """A step that does not end; it knows that it has begun, and that it was cancelled."""

    def __init__(self) -> None:
        self.begun, self.cancelled = asyncio.Event(), asyncio.Event()

    async def __call__(self, _job: Job) -> Done:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
        raise AssertionError


def failing(code: str = "REFUSED", *, is_permanent: bool = False) -> Step:
    """Return a step that fails, and says at which attempt."""

    async def step(job: Job) -> Done:
        raise StepFailed(code, f"attempt {job.attempts}", is_permanent=is_permanent)

    return step


def enqueue_counts(tx: Connection, count: int, steps: int, now: int) -> list[str]:
    return [enqueue(tx, NewJob(COUNT, steps), now) for _ in range(count)]


async def get(database: Database, job_id: str) -> Job:
    job = await database.read(find_job, job_id)
    assert job is not None
    return job


async def lose_workers(database: Database, kind: str, now: int) -> None:
    """Let the one due job of a kind lose a worker at every attempt."""
    for attempt in range(COUNTING.max_attempts or 0):
        leased = await database.write(lease, LeaseTerms(str(attempt), now, 1, {kind}), now)
        assert [job.attempts for job in leased] == [attempt + 1]


def end_leases(url: str) -> list[str]:
    """Let the leases of killed workers have run out, and return the kinds of their jobs.

    One so short that a test could wait for its end might be lost by a worker that lives, on a busy
    machine.
    """
    with querying(url) as query:
        ended = query("UPDATE jobs SET due_at = 0 WHERE lease_token IS NOT NULL RETURNING kind")
    return [kind for (kind,) in ended]


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something is so; the test's own time limit ends a wait in vain."""
    while not await holds():  # noqa: ASYNC110 - what other processes do sets no event
        await asyncio.sleep(0.002)


@asynccontextmanager
async def running(worker: JobWorker) -> AsyncIterator[JobWorker]:
    """Run a worker, and stop it with grace."""
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    except BaseException:
        task.cancel()
        raise
    worker.stop()
    await task


async def run_due(
    database: Database, kinds: Sequence[JobKind], clock: Callable[[], int], pace: JobPace = SWIFT
) -> None:
    """Run the jobs of these kinds until none is due."""
    names = text_list([kind.name for kind in kinds])

    def is_busy(tx: Connection) -> bool:
        row = tx.row(_BUSY, kinds=names, now=clock())
        return row is None or row[0] > 0

    async def is_idle() -> bool:
        return not await database.read(is_busy)

    async with running(JobWorker(database, kinds, pace=pace, clock=clock)):
        await until(is_idle)


async def run_one(database: Database, step: Step, **options: Any) -> Job:  # noqa: ANN401
    """Run one job of a kind with this step and these options until it has ended; return it."""
    [identity] = await database.write(enqueue_counts, 1, 1, system_clock())
    async with running(JobWorker(database, [JobKind(name=COUNT, step=step, **options)])):
        await until_finished(database)
    return await get(database, identity)


async def until_finished(database: Database) -> None:
    """Wait until every job has ended."""

    async def finished() -> bool:
        return not await database.read(unfinished)

    await until(finished)

"""Jobs under races, leases of workers that live, and those of workers that have died.

What the transactions do one after the other: `tests/property/test_jobs_model.py`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import psycopg
import pytest

from cloudcore.clock import system_clock, uuid7
from cloudcore.db.base import Database
from cloudcore.db.statement import Statement
from cloudcore.jobs import outbox, queue, runs, schedule_rows
from cloudcore.jobs.dead_holders import QUICK_ATTEMPTS, DeadHolders, WorkerLocks, noticing_deaths
from cloudcore.jobs.kinds import Done, JobKind, Next
from cloudcore.jobs.queue import Job, LeaseLost, LeaseTerms, NewJob, enqueue, lease
from cloudcore.jobs.worker import JobPace, JobWorker
from tests.databases import on_both_databases, opened
from tests.dying import Kind, PassingDatabase
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
    job_ids,
    list_effects,
    running,
    until,
    until_finished,
    with_effects,
)
from tests.schedules import all_turns

pytestmark = with_effects

LEASE: Final = 60_000_000
STATEMENTS: Final = {
    f"{module.__name__}.{name}": value
    for module in (queue, outbox, runs, schedule_rows)
    for name, value in vars(module).items()
    if isinstance(value, Statement)
}


def terms(now: int, limit: int = 1) -> LeaseTerms:
    return LeaseTerms(uuid7(), now + LEASE, limit, {COUNT})


@pytest.fixture
async def other(metadata_url: str) -> AsyncIterator[Database]:
    """Return the connections of another process."""
    async with opened(metadata_url) as database:
        yield database


@on_both_databases
async def test_of_many_starts_at_once_there_is_one_job(database: Database, other: Database) -> None:
    new = NewJob(COUNT, dedup_key="k")
    started = await asyncio.gather(
        *(one.write(enqueue, new, START) for one in (database, other) * 10)
    )
    assert len(set(started)) == 1
    assert await database.read(job_ids) == started[:1]


@on_both_databases
async def test_no_two_leases_hold_one_job(database: Database, other: Database) -> None:
    await database.write(enqueue_counts, 40, 1, START)
    leased = await asyncio.gather(
        *(one.write(lease, terms(START, 4), START) for one in (database, other) * 8)
    )
    taken = [job.id for jobs in leased for job in jobs]
    assert len(taken) == len(set(taken))
    rest = await database.write(lease, terms(START, 40), START)
    assert len(taken) + len(rest) == 40


class _Anything(dict[str, str]):
    """Has a value for every parameter."""

    def __missing__(self, key: str) -> str:
        return "[]"


def test_no_statement_reads_a_whole_table(sqlite_database: str) -> None:
    assert len(STATEMENTS) > 30
    with closing(sqlite3.connect(sqlite_database.removeprefix("sqlite:///"))) as connection:
        for name, statement in STATEMENTS.items():
            plan = connection.execute(f"EXPLAIN QUERY PLAN {statement.sqlite}", _Anything())
            details = [row[3] for row in plan]
            reads = [one for one in details if one.startswith("SCAN") and "SCAN listed" not in one]
            assert reads == [], (name, details)
            assert not any("TEMP B-TREE FOR ORDER BY" in each for each in details), (name, details)


@pytest.mark.postgresql
def test_postgresql_finds_due_work_by_its_index(postgresql_database: str) -> None:
    """Among ten thousand finished and ten thousand waiting jobs."""
    with psycopg.connect(postgresql_database, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO jobs (id, kind, state, arguments, cursor, attempts, due_at, created_at,"
            " updated_at, finished_at) SELECT n::text, 'count', CASE WHEN n % 2 = 0 THEN 'queued'"
            " ELSE 'succeeded' END, 'null', 'null', 0, CASE WHEN n % 2 = 0 THEN n END, 0, 0,"
            " CASE WHEN n % 2 = 1 THEN n END FROM generate_series(1, 20000) n"
        )
        connection.execute("ANALYZE jobs")
        for statement in (queue._FIRST_DUE, queue._LOCK_DUE_AND_FREE, queue.forget_finished):
            plan = connection.execute(
                f"EXPLAIN {statement.postgresql}".encode(),
                {"kinds": '["count"]', "now": 100, "limit": 4, "before": 100},
            ).fetchall()
            assert not any("Seq Scan" in row[0] or "Sort" in row[0] for row in plan), plan


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


@on_both_databases
@pytest.mark.parametrize("lease_seconds", [60, 0.02])
async def test_racing_workers_commit_each_step_once(
    database: Database, other: Database, lease_seconds: float, caplog: pytest.LogCaptureFixture
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
        jobs = await database.write(enqueue_counts, 20, 3, system_clock())
        pace = JobPace(slots=8, lease_seconds=lease_seconds, poll_seconds=0.01)
        kind = JobKind(name=COUNT, step=step, max_attempts=None)
        async with (
            running(JobWorker(database, [kind], pace=pace)),
            running(JobWorker(other, [kind], pace=pace)),
        ):
            await until_finished(database)
        assert await database.read(list_effects) == sorted(
            (job, number) for job in jobs for number in range(3)
        )
        assert {job.state for job in await database.read(all_jobs)} == {"succeeded"}
        if lease_seconds > 1:
            assert set(runs.values()) == {1}


HOUR = 3_600_000_000
END = START + HOUR
CHORE = "test.chore"


def held_lease(token: str, holder: str | None) -> LeaseTerms:
    """Return a lease of one job for an hour."""
    return LeaseTerms(token, END, 1, {COUNT}, holder)


@on_both_databases
async def test_a_job_of_a_dead_worker_is_done_by_another_at_once(database: Database) -> None:
    clock = Clock()
    [identity] = await database.write(enqueue_counts, 1, 1, START)
    [lost] = await database.write(queue.lease, held_lease("lost", "dead"), START)
    dead = DeadHolders(database, clock, lambda: ["dead"])
    async with noticing_deaths(dead, "own"), running(JobWorker(database, [COUNTING], clock=clock)):
        await until_finished(database)
    assert await database.read(list_effects) == [(identity, 0)]
    assert not await database.write(queue.renew, lost, END)
    with pytest.raises(LeaseLost):
        await database.write(queue.succeed, lost, START)


@on_both_databases
async def test_the_jobs_of_others_and_those_that_have_ended_are_left(database: Database) -> None:
    clock = Clock()
    ids = await database.write(enqueue_counts, 4, 1, START)
    taken = {}
    for token, holder in (("a", "dead"), ("b", "alive"), ("c", None), ("d", "dead")):
        [job] = await database.write(queue.lease, held_lease(token, holder), START)
        taken[token] = job
    await database.write(queue.succeed, taken["a"], START)
    await database.write(queue.pause, taken["d"], 1, END, START)
    await DeadHolders(database, clock, lambda: ["dead", "older"]).look()
    after = {each.id: each for each in [await get(database, identity) for identity in ids]}
    assert after[taken["a"].id].state == "succeeded"
    for token in "bc":
        assert after[taken[token].id] == taken[token]
    assert after[taken["d"].id].due_at == END


async def test_a_job_at_which_workers_die_again_and_again_waits(database: Database) -> None:
    clock = Clock()
    [identity] = await database.write(enqueue_counts, 1, 1, START)
    for attempt in range(QUICK_ATTEMPTS + 1):
        holder = f"dead {attempt}"
        [job] = await database.write(queue.lease, held_lease(holder, holder), START)
        assert job.attempts == attempt + 1
        await DeadHolders(database, clock, partial(list, (holder,))).look()
    assert (await get(database, identity)).due_at == END


@on_both_databases
async def test_a_turn_of_a_dead_worker_is_due_unless_one_died_at_the_last(
    database: Database,
) -> None:
    clock = Clock()
    await database.write(schedule_rows.insert_missing, {CHORE: START, "other": START})
    for holder, due_at in (("one", START), ("two", END)):
        terms = [CHORE], holder, END, START, holder
        assert await database.write(schedule_rows.lease, *terms) == [CHORE]
        await DeadHolders(database, clock, partial(list, (holder,))).look()
        turn = (await database.read(all_turns))[CHORE]
        assert turn.due_at == due_at
        assert turn.fault is not None
        assert (turn.fault.code, turn.fault.occurrences) == ("WORKER_LOST", 1)
    assert (await database.read(all_turns))["other"].fault is None
    assert await database.write(schedule_rows.end, CHORE, "two", START, None, START)
    await database.write(schedule_rows.lease, [CHORE], "three", END, START, "three")
    await DeadHolders(database, clock, lambda: ["three"]).look()
    assert (await database.read(all_turns))[CHORE].due_at == START


class WatchedDatabase(PassingDatabase):
    """Counts the relaxed changes."""

    changes = 0

    async def before(self, kind: Kind, _call: object) -> None:
        self.changes += kind == "write_relaxed"


async def test_a_death_is_looked_up_once(database: Database) -> None:
    watched = WatchedDatabase(database)
    found = ["one"]
    dead = DeadHolders(watched, Clock(), lambda: found)
    await dead.look()
    once = watched.changes
    await dead.look()
    assert watched.changes == once
    found.append("two")
    await dead.look()
    assert watched.changes > once


async def test_a_worker_that_stops_hands_back_what_it_holds(database: Database) -> None:
    [identity] = await database.write(enqueue_counts, 1, 1, START)
    async with noticing_deaths(DeadHolders(database, Clock(), list), "own"):
        await database.write(queue.lease, held_lease("token", "own"), START)
    assert (await get(database, identity)).due_at == START


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_full_disk_keeps_no_worker_from_its_work(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    locks = WorkerLocks(tmp_path / "workers")
    worked = []

    def work() -> None:
        with locks.locked("one"):
            worked.append("one")

    def full(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as disk:
        disk.setattr("os.open", full)
        if number == errno.EROFS:
            with pytest.raises(OSError, match="Read-only"):
                work()
            return
        work()
    assert worked == ["one"]
    assert "a death of this worker will be noticed late" in caplog.text
    assert locks.dead() == []

"""The queue's transactions: joining, leasing, guarding by the token, failing, forgetting."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from functools import partial
from typing import Final

import psycopg
import pytest

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.db.opening import open_database
from cloudcore.db.statement import Statement
from cloudcore.jobs import outbox, queue, runs, schedule_rows
from cloudcore.jobs.queue import KEPT_SECONDS, Job, LeaseLost, LeaseTerms, NewJob, enqueue, lease
from tests.databases import on_both_databases
from tests.jobs import (
    COUNT,
    START,
    add_effect,
    all_jobs,
    enqueue_counts,
    get,
    job_ids,
    list_effects,
    make_tables,
    with_effects,
)

LEASE: Final = 60_000_000
STATEMENTS: Final = {
    f"{module.__name__}.{name}": value
    for module in (queue, outbox, runs, schedule_rows)
    for name, value in vars(module).items()
    if isinstance(value, Statement)
}


def terms(now: int, limit: int = 1) -> LeaseTerms:
    return LeaseTerms(uuid7(), now + LEASE, limit, {COUNT})


async def lease_one(database: Database, now: int) -> Job:
    [job] = await database.write(lease, terms(now), now)
    return job


@with_effects
@on_both_databases
async def test_a_job_is_there_if_and_only_if_its_change_is(database: Database) -> None:
    def refused(tx: Connection) -> None:
        enqueue(tx, NewJob(COUNT), START)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        await database.write(refused)
    assert await database.read(job_ids) == []
    new = NewJob(COUNT, {"a": [1]}, resource="crn:x", delay_seconds=1.5)
    identity = await database.write(enqueue, new, START)
    job = await get(database, identity)
    assert (job.state, job.arguments, job.cursor, job.resource, job.attempts) == (
        ("queued", {"a": [1]}, None, "crn:x", 0)
    )
    assert job.due_at == START + 1_500_000


@with_effects
@on_both_databases
async def test_a_start_joins_the_unfinished_job_of_its_key(database: Database) -> None:
    new = NewJob(COUNT, dedup_key="k")
    first = await database.write(enqueue, new, START)
    assert await database.write(enqueue, new._replace(arguments=7), START + 1) == first
    job = await lease_one(database, START + 1)
    assert await database.write(enqueue, new, START + 2) == first
    running = await get(database, first)
    assert (running.arguments, running.lease_token) == (None, job.lease_token)
    other = await database.write(enqueue, new._replace(dedup_key="other"), START)
    await database.write(queue.succeed, job, START + 3)
    again = await database.write(enqueue, new, START + 4)
    assert len({first, other, again}) == 3
    assert (await get(database, first)).state == "succeeded"


@with_effects
async def test_of_many_starts_at_once_there_is_one_job(
    database: Database, database_url: str
) -> None:
    other = open_database(database_url)
    new = NewJob(COUNT, dedup_key="k")
    started = await asyncio.gather(
        *(one.write(enqueue, new, START) for one in (database, other) * 10)
    )
    await other.close()
    assert len(set(started)) == 1
    assert await database.read(job_ids) == started[:1]


@with_effects
async def test_no_two_leases_hold_one_job(database: Database, database_url: str) -> None:
    other = open_database(database_url)
    await database.write(enqueue_counts, 40, 1, START)
    leased = await asyncio.gather(
        *(one.write(lease, terms(START, 4), START) for one in (database, other) * 8)
    )
    await other.close()
    taken = [job.id for jobs in leased for job in jobs]
    assert len(taken) == len(set(taken))
    rest = await database.write(lease, terms(START, 40), START)
    assert len(taken) + len(rest) == 40


@with_effects
@on_both_databases
async def test_the_job_due_longest_is_leased_first(database: Database) -> None:
    for delay in (3, 1, 2, 9):
        await database.write(enqueue, NewJob(COUNT, delay, delay_seconds=delay), START)
    assert await database.read(queue.first_due, {COUNT}) == START + 1_000_000
    assert await database.read(queue.first_due, {"other"}) is None
    now = START + 5_000_000
    leased = [(await lease_one(database, now)).arguments for _ in range(3)]
    assert leased == [1, 2, 3]
    assert await database.write(lease, terms(now), now) == []


@with_effects
@on_both_databases
async def test_who_lost_the_lease_changes_nothing(database: Database) -> None:
    def late_step(job: Job, tx: Connection) -> None:
        add_effect(job.id, 0, tx)
        queue.advance(tx, job, 1, START, START, keep=True)

    def late_end(job: Job, tx: Connection) -> None:
        add_effect(job.id, 0, tx)
        queue.succeed(tx, job, START)

    def late_failure(job: Job, tx: Connection) -> None:
        queue.record_failure(tx, job, "CODE", "message", lambda _: None, START)

    await database.write(enqueue_counts, 1, 2, START)
    slow = await lease_one(database, START)
    assert await database.write(lease, terms(START), START + LEASE - 1) == []
    assert await database.write(queue.renew, slow, START + LEASE + 1)
    assert await database.write(lease, terms(START), START + LEASE) == []
    now = START + LEASE + 1
    taken = await lease_one(database, now)
    assert (taken.id, taken.attempts) == (slow.id, 2)
    for change in (late_step, late_end, late_failure):
        with pytest.raises(LeaseLost):
            await database.write(partial(change, slow))
    assert not await database.write(queue.renew, slow, now + LEASE)
    assert await database.read(list_effects) == []
    assert await get(database, slow.id) == taken
    await database.write(partial(late_end, taken))
    assert await database.read(list_effects) == [(slow.id, 0)]


@with_effects
@on_both_databases
async def test_faults_add_up_by_code_and_a_success_clears_them(database: Database) -> None:
    async def fail(database: Database, code: str, now: int) -> Job:
        job = await lease_one(database, now)
        await database.write(queue.record_failure, job, code, f"at {now}", lambda _: 0.0, now)
        return await get(database, job.id)

    await database.write(enqueue_counts, 1, 1, START)
    seen = [
        (await fail(database, code, START + number)).fault
        for number, code in enumerate(("A", "A", "A", "B", "A"))
    ]
    assert [(f.occurrences, f.first_at - START, f.last_at - START) for f in seen if f] == (
        [(1, 0, 0), (2, 0, 1), (3, 0, 2), (1, 3, 3), (1, 4, 4)]
    )
    job = await lease_one(database, START + 9)
    moved = await database.write(queue.advance, job, 1, START + 10, START + 9, keep=False)
    assert (await get(database, job.id)) == moved
    assert (moved.state, moved.fault, moved.attempts) == ("running", None, 0)


@with_effects
@on_both_databases
async def test_only_jobs_finished_long_ago_are_forgotten(database: Database) -> None:
    [done, waiting] = await database.write(enqueue_counts, 2, 1, START)
    leased = await database.write(lease, terms(START, 2), START)
    [job] = [job for job in leased if job.id == done]
    await database.write(queue.succeed, job, START)
    kept = KEPT_SECONDS * 1_000_000
    assert await database.write(queue.forget_finished, START + kept - 1) == 0
    assert await database.write(queue.forget_finished, START + kept) == 1
    assert [job.id for job in await database.read(all_jobs)] == [waiting]


class _Anything(dict[str, str]):
    """Has a value for every parameter."""

    def __missing__(self, key: str) -> str:
        return "[]"


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_reads_a_whole_table(sqlite_database: str, name: str) -> None:
    make_tables(sqlite_database)
    with closing(sqlite3.connect(sqlite_database.removeprefix("sqlite:///"))) as connection:
        text = STATEMENTS[name].sqlite
        plan = connection.execute(f"EXPLAIN QUERY PLAN {text}", _Anything()).fetchall()
    details = [row[3] for row in plan]
    reads = [one for one in details if one.startswith("SCAN") and one.split()[1] != "listed"]
    assert reads == [], details
    assert not any("TEMP B-TREE FOR ORDER BY" in detail for detail in details), details


@pytest.mark.postgresql
def test_postgresql_finds_due_work_by_its_index(postgresql_database: str) -> None:
    """Among ten thousand finished and ten thousand waiting jobs."""
    make_tables(postgresql_database)
    with psycopg.connect(postgresql_database, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO jobs (id, kind, state, arguments, cursor, attempts, due_at, created_at,"
            " updated_at, finished_at) SELECT n::text, 'count', CASE WHEN n % 2 = 0 THEN 'queued'"
            " ELSE 'succeeded' END, 'null', 'null', 0, CASE WHEN n % 2 = 0 THEN n END, 0, 0,"
            " CASE WHEN n % 2 = 1 THEN n END FROM generate_series(1, 20000) n"
        )
        connection.execute("ANALYZE jobs")
        for statement in (queue._FIRST_DUE, queue._LOCK_DUE_AND_FREE, queue._FORGET):
            plan = connection.execute(
                f"EXPLAIN {statement.postgresql}".encode(),
                {"kinds": '["count"]', "now": 100, "limit": 4, "before": 100},
            ).fetchall()
            assert not any("Seq Scan" in row[0] or "Sort" in row[0] for row in plan), plan

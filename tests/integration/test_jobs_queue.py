"""The queue under races, and the plans of its statements.

What its transactions do one after the other: `tests/property/test_jobs_model.py`.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import Final

import psycopg
import pytest

from cloudcore.clock import uuid7
from cloudcore.db.base import Database
from cloudcore.db.opening import open_database
from cloudcore.db.statement import Statement
from cloudcore.jobs import outbox, queue, runs, schedule_rows
from cloudcore.jobs.queue import LeaseTerms, NewJob, enqueue, lease
from tests.jobs import COUNT, START, enqueue_counts, job_ids, make_tables, with_effects

LEASE: Final = 60_000_000
STATEMENTS: Final = {
    f"{module.__name__}.{name}": value
    for module in (queue, outbox, runs, schedule_rows)
    for name, value in vars(module).items()
    if isinstance(value, Statement)
}


def terms(now: int, limit: int = 1) -> LeaseTerms:
    return LeaseTerms(uuid7(), now + LEASE, limit, {COUNT})


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

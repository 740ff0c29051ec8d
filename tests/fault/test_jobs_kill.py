"""Workers killed at random moments: each step has its effect once, no state goes back (K)."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from typing import Final

import psycopg
import pytest

from cloudcore.clock import system_clock
from cloudcore.db.base import Database
from tests.databases import with_database
from tests.jobs import all_jobs, enqueue_counts, list_effects, make_tables, unfinished, until
from tests.loaded import start_worker

WORKER: Final = "tests.fault.job_worker"
CYCLES: Final = 20
JOBS_A_CYCLE: Final = 6
STEPS: Final = 8

# Every move of a job, as the database itself saw it.
MOVES: Final = """
CREATE TABLE moves (job_id text, old_state text, old_cursor text, new_state text, new_cursor text)
"""
SQLITE_TRIGGER: Final = """
CREATE TRIGGER record_moves AFTER UPDATE ON jobs BEGIN
INSERT INTO moves VALUES (NEW.id, OLD.state, OLD.cursor, NEW.state, NEW.cursor); END
"""
POSTGRESQL_TRIGGER: Final = """
CREATE FUNCTION record_move() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
INSERT INTO moves VALUES (NEW.id, OLD.state, OLD.cursor, NEW.state, NEW.cursor); RETURN NULL;
END $$;
CREATE TRIGGER record_moves AFTER UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION record_move()
"""
STATES: Final = ["queued", "running", "succeeded"]


@contextmanager
def raw(url: str) -> Iterator[sqlite3.Connection | psycopg.Connection]:
    """Return a connection below our own code, committed at the end."""
    connection: sqlite3.Connection | psycopg.Connection
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    else:
        connection = psycopg.connect(url)
    with closing(connection), connection:
        yield connection


def record_moves(url: str) -> None:
    with raw(url) as connection:
        connection.execute(MOVES)
        connection.execute(SQLITE_TRIGGER if url.startswith("sqlite") else POSTGRESQL_TRIGGER)


def check_moves(url: str) -> None:
    with raw(url) as connection:
        moves = connection.execute("SELECT * FROM moves").fetchall()
    assert moves
    for _, old_state, old_cursor, new_state, new_cursor in moves:
        assert STATES.index(old_state) <= STATES.index(new_state)
        was, now = (0 if cursor == "null" else int(cursor) for cursor in (old_cursor, new_cursor))
        assert now - was in (0, 1)


@pytest.mark.parametrize(
    ("kind", "cycles"),
    [("sqlite", CYCLES), pytest.param("postgresql", 6, marks=pytest.mark.postgresql)],
)
def test_killed_workers_do_each_step_once(
    request: pytest.FixtureRequest, kind: str, cycles: int
) -> None:
    """Two workers share the queue; one after the other is killed and replaced."""
    url: str = request.getfixturevalue(f"{kind}_database")
    make_tables(url)
    record_moves(url)
    begun: list[str] = []
    workers = [start_worker(WORKER, url), start_worker(WORKER, url)]
    jobs: list[str] = []

    async def put_in(database: Database) -> None:
        jobs.extend(await database.write(enqueue_counts, JOBS_A_CYCLE, STEPS, system_clock()))

    async def effects(database: Database) -> list[tuple[str, int]]:
        return await database.read(list_effects)

    async def drain(database: Database) -> None:
        async def is_drained() -> bool:
            return not await database.read(unfinished)

        await until(is_drained)
        expected = sorted((job, step) for job in jobs for step in range(STEPS))
        assert await effects(database) == expected
        states = {job.id: job.state for job in await database.read(all_jobs)}
        assert states == dict.fromkeys(jobs, "succeeded")

    is_cut = False  # a death has met the middle of a step
    try:
        for cycle in count():
            if cycle >= cycles and is_cut:
                break
            killed = workers[cycle % 2]
            assert killed.stdout.readline() == "ready\n"
            with_database(url, put_in)
            time.sleep(random.uniform(0, 0.3))  # the moment of death, not a synchronisation
            last = killed.kill().splitlines()
            done = {f"{job} {step or None}" for job, step in with_database(url, effects)}
            is_cut = is_cut or not done.issuperset(last)
            begun += last
            workers[cycle % 2] = start_worker(WORKER, url)
        with_database(url, drain)
    finally:
        for worker in workers:
            begun += worker.kill().splitlines()
    begun = [line for line in begun if line != "ready"]
    check_moves(url)
    assert len(begun) > len(jobs) * STEPS  # some steps were begun again

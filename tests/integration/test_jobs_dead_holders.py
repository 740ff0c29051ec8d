"""Leases of worker processes that have died: free at once, with a brake for what may kill them."""

from __future__ import annotations

import errno
import os
from functools import partial
from pathlib import Path

import pytest

from cloudcore.db.base import Database
from cloudcore.jobs import queue, schedule_rows
from cloudcore.jobs.dead_holders import QUICK_ATTEMPTS, DeadHolders, WorkerLocks, noticing_deaths
from cloudcore.jobs.queue import LeaseLost, LeaseTerms
from cloudcore.jobs.worker import JobWorker
from tests.databases import on_both_databases
from tests.dying import Kind, PassingDatabase
from tests.jobs import (
    COUNT,
    COUNTING,
    START,
    Clock,
    enqueue_counts,
    get,
    list_effects,
    running,
    until_finished,
    with_effects,
)
from tests.schedules import all_turns

HOUR = 3_600_000_000
END = START + HOUR
CHORE = "test.chore"


def terms(token: str, holder: str | None) -> LeaseTerms:
    """Return a lease of one job for an hour."""
    return LeaseTerms(token, END, 1, {COUNT}, holder)


@with_effects
@on_both_databases
async def test_a_job_of_a_dead_worker_is_done_by_another_at_once(database: Database) -> None:
    clock = Clock()
    [identity] = await database.write(enqueue_counts, 1, 1, START)
    [lost] = await database.write(queue.lease, terms("lost", "dead"), START)
    dead = DeadHolders(database, clock, lambda: ["dead"])
    async with noticing_deaths(dead, "own"), running(JobWorker(database, [COUNTING], clock=clock)):
        await until_finished(database)
    assert await database.read(list_effects) == [(identity, 0)]
    assert not await database.write(queue.renew, lost, END)
    with pytest.raises(LeaseLost):
        await database.write(queue.succeed, lost, START)


@with_effects
@on_both_databases
async def test_the_jobs_of_others_and_those_that_have_ended_are_left(database: Database) -> None:
    clock = Clock()
    ids = await database.write(enqueue_counts, 4, 1, START)
    taken = {}
    for token, holder in (("a", "dead"), ("b", "alive"), ("c", None), ("d", "dead")):
        [job] = await database.write(queue.lease, terms(token, holder), START)
        taken[token] = job
    await database.write(queue.succeed, taken["a"], START)
    await database.write(queue.pause, taken["d"], 1, END, START)
    await DeadHolders(database, clock, lambda: ["dead", "older"]).look()
    after = {each.id: each for each in [await get(database, identity) for identity in ids]}
    assert after[taken["a"].id].state == "succeeded"
    for token in "bc":
        assert after[taken[token].id] == taken[token]
    assert after[taken["d"].id].due_at == END


@with_effects
@on_both_databases
async def test_a_job_at_which_workers_die_again_and_again_waits(database: Database) -> None:
    clock = Clock()
    [identity] = await database.write(enqueue_counts, 1, 1, START)
    for attempt in range(QUICK_ATTEMPTS + 1):
        holder = f"dead {attempt}"
        [job] = await database.write(queue.lease, terms(holder, holder), START)
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
        lease = schedule_rows.TurnTerms(holder, END, holder)
        assert await database.write(schedule_rows.lease, [CHORE], lease, START) == [CHORE]
        await DeadHolders(database, clock, partial(list, (holder,))).look()
        turn = (await database.read(all_turns))[CHORE]
        assert turn.due_at == due_at
        assert turn.fault is not None
        assert (turn.fault.code, turn.fault.occurrences) == ("WORKER_LOST", 1)
    assert (await database.read(all_turns))["other"].fault is None
    ended = schedule_rows.TurnEnd(CHORE, "two", START, None)
    assert await database.write(schedule_rows.end, ended, START)
    lease = schedule_rows.TurnTerms("three", END, "three")
    await database.write(schedule_rows.lease, [CHORE], lease, START)
    await DeadHolders(database, clock, lambda: ["three"]).look()
    assert (await database.read(all_turns))[CHORE].due_at == START


class WatchedDatabase(PassingDatabase):
    """Counts the relaxed changes."""

    changes = 0

    async def before(self, kind: Kind, _call: object) -> None:
        self.changes += kind == "write_relaxed"


@on_both_databases
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


@with_effects
@on_both_databases
async def test_a_worker_that_stops_hands_back_what_it_holds(database: Database) -> None:
    [identity] = await database.write(enqueue_counts, 1, 1, START)
    async with noticing_deaths(DeadHolders(database, Clock(), list), "own"):
        await database.write(queue.lease, terms("token", "own"), START)
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

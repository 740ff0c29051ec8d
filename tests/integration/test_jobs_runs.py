"""Runs, by a third kind that writes its step only: a copy of numbers, ten at a time."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

import pytest

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.db.opening import open_database
from cloudcore.jobs.faults import MAX_FAULTS, Fault, add_fault
from cloudcore.jobs.kinds import Done, JobKind, Next, StepFailed
from cloudcore.jobs.queue import Job
from cloudcore.jobs.runs import (
    NewRun,
    Progress,
    Run,
    add_run_fault,
    count_runs,
    end_run,
    find_run,
    find_running,
    list_runs,
    progress_run,
    remove_runs,
    run_kind,
    start_run,
)
from tests.databases import add_account, on_both_databases
from tests.jobs import (
    START,
    Clock,
    add_effect,
    all_jobs,
    find_job,
    list_effects,
    lose_workers,
    run_due,
    with_effects,
)

pytestmark = with_effects

COPY: Final = "test.copy"
SCOPE: Final = "0189b7c0-0000-7000-8000-00000000000b"
PORTION: Final = 10
KEPT_SECONDS: Final = 3600


# The family: what it counts, how a run starts, and its step. The rest is the kernel's.


def start_copy(tx: Connection, account_id: str, run_id: str, total: int, now: int) -> Run:
    new = NewRun(
        id=run_id,
        kind=COPY,
        account_id=account_id,
        scope_id=SCOPE,
        resource=f"crn:test:local:{account_id}:number/*",
        started_by="someone",
        counts=("copied", "skipped"),
        kept_seconds=KEPT_SECONDS,
        arguments={"total": total},
    )
    return start_run(tx, new, now)


async def copy_step(run: Run, job: Job) -> Next | Done:
    total, begin = run.arguments["total"], job.cursor or 0
    end = min(begin + PORTION, total)
    change = partial(copy_portion, run, range(begin, end))
    return Done(change) if end == total else Next(end, change)


def copy_portion(run: Run, numbers: range, tx: Connection) -> None:
    if 13 in numbers:
        raise StepFailed("UNLUCKY", "13 cannot be copied", is_permanent=True)
    for number in numbers:
        add_effect(run.id, number, tx)
    progress = Progress({"copied": len(numbers)}, done=numbers.stop, total=run.arguments["total"])
    progress_run(tx, run.id, progress)


# The tests.


def copying(database: Database, clock: Clock, ended: list[Run]) -> JobKind:
    return run_kind(COPY, copy_step, database=database, clock=clock, on_end_committed=ended.append)


async def make_account(database: Database, handle: str = "acme") -> str:
    return await database.write(add_account, handle)


async def get_run(database: Database, run_id: str) -> Run:
    run = await database.read(find_run, COPY, SCOPE, run_id)
    assert run is not None
    return run


async def test_a_family_writes_its_step_only(database: Database) -> None:
    clock = Clock()
    ended: list[Run] = []
    account = await make_account(database)
    begun = await database.write(start_copy, account, uuid7(), 12, START)
    assert (begun.state, begun.done, begun.total) == ("running", 0, None)
    assert begun.counts == {"copied": 0, "skipped": 0}
    assert (begun.started_by, begun.started_at) == ("someone", START)
    clock.pass_seconds(5)
    await run_due(database, [copying(database, clock, ended)], clock)
    run = await get_run(database, begun.id)
    assert (run.state, run.done, run.total) == ("succeeded", 12, 12)
    assert (run.counts, run.fault, run.faults) == ({"copied": 12, "skipped": 0}, None, [])
    assert (run.finished_at, run.account_id) == (clock.now, account)
    assert ended == [run]
    assert await database.read(list_effects) == [(run.id, number) for number in range(12)]
    (job,) = await database.read(all_jobs)
    assert (job.kind, job.account_id, job.state) == (COPY, account, "succeeded")


async def test_a_run_that_cannot_go_on_fails_with_its_job(database: Database) -> None:
    """With what it did before; the change of the step that failed is undone."""
    clock = Clock()
    ended: list[Run] = []
    begun = await database.write(start_copy, await make_account(database), uuid7(), 30, START)
    await run_due(database, [copying(database, clock, ended)], clock)
    run = await get_run(database, begun.id)
    assert (run.state, run.fault) == ("failed", "UNLUCKY: 13 cannot be copied")
    assert (run.counts["copied"], run.done, run.total) == (10, 10, 30)
    (fault,) = run.faults
    assert (fault.code, fault.occurrences, fault.subject) == ("UNLUCKY", 1, "")
    assert ended == [run]
    assert len(await database.read(list_effects)) == 10
    (job,) = await database.read(all_jobs)
    assert job.state == "failed"
    assert job.finished_at == run.finished_at


async def test_a_run_whose_workers_die_fails_and_holds_up_no_other(database: Database) -> None:
    clock = Clock()
    account = await make_account(database)
    begun = await database.write(start_copy, account, uuid7(), 5, START)
    await lose_workers(database, COPY, START)
    await run_due(database, [copying(database, clock, [])], clock)
    run = await get_run(database, begun.id)
    assert (run.state, run.fault) == ("failed", "WORKER_LOST")
    again = await database.write(start_copy, account, uuid7(), 5, START)
    assert again.id != begun.id


async def test_of_many_starts_at_once_there_is_one_run(
    database: Database, database_url: str
) -> None:
    other = open_database(database_url)
    account = await make_account(database)
    started = await asyncio.gather(
        *(one.write(start_copy, account, uuid7(), 5, START) for one in (database, other) * 10)
    )
    await other.close()
    (run_id,) = {run.id for run in started}
    (job,) = await database.read(all_jobs)
    assert job.arguments == {"run_id": run_id}
    assert (await database.read(find_running, COPY, SCOPE)) in started
    elsewhere = NewRun(uuid7(), COPY, account, uuid7(), "crn:x", "", (), KEPT_SECONDS)
    assert (await database.write(start_run, elsewhere, START)).id == elsewhere.id


async def test_counts_of_workers_at_once_all_add_up(database: Database, database_url: str) -> None:
    other = open_database(database_url)
    begun = await database.write(start_copy, await make_account(database), uuid7(), 5, START)
    one = Progress({"copied": 1})
    await asyncio.gather(
        *(each.write(progress_run, begun.id, one) for each in (database, other) * 10)
    )
    await other.close()
    run = await get_run(database, begun.id)
    assert (run.counts, run.done, run.total) == ({"copied": 20, "skipped": 0}, 0, None)
    with pytest.raises(KeyError, match="elsewhere"):
        await database.write(progress_run, begun.id, Progress({"elsewhere": 1}))
    await database.write(progress_run, "gone", one)  # changes nothing


async def test_faults_on_the_way_add_up_by_code_and_subject(database: Database) -> None:
    begun = await database.write(start_copy, await make_account(database), uuid7(), 5, START)
    seen = (("A", "x"), ("A", "y"), ("A", "x"), ("B", "x"), ("A", "x"))
    for number, (code, subject) in enumerate(seen):
        message, now = f"at {number}", START + number
        await database.write(add_run_fault, begun.id, code, message, now, subject=subject)
    run = await get_run(database, begun.id)
    assert run.state == "running"
    assert run.faults == [
        Fault("A", "at 4", START, START + 4, 3, "x"),
        Fault("A", "at 1", START + 1, START + 1, 1, "y"),
        Fault("B", "at 3", START + 3, START + 3, 1, "x"),
    ]
    ended = await database.write(end_run, begun.id, START + 9)
    assert ended is not None
    assert (ended.state, ended.faults) == ("succeeded", run.faults)
    assert await database.write(end_run, begun.id, START + 10) is None
    assert await get_run(database, begun.id) == ended


def test_faults_of_many_subjects_are_bounded() -> None:
    faults = add_fault([], "A", "first", START, subject="0")
    for number in range(1, MAX_FAULTS + 50):
        faults = add_fault(faults, "A", "more", START + number, subject=str(number))
    assert len(faults) == MAX_FAULTS + 1
    assert (faults[-1].subject, faults[-1].occurrences) == ("", 50)
    faults = add_fault(faults, "A", "again", START + 999, subject="0")
    assert (faults[0].message, faults[0].occurrences, faults[0].first_at) == ("again", 2, START)


@on_both_databases
async def test_lists_are_of_a_kind_and_scope_the_newest_first(database: Database) -> None:
    account = await make_account(database)
    ids: list[str] = []
    for number in range(5):
        run = await database.write(start_copy, account, uuid7(START + 1000 * number), 5, START)
        await database.write(end_run, run.id, START)
        ids.insert(0, run.id)
    other = NewRun(uuid7(), "test.other", account, SCOPE, "crn:x", "", (), KEPT_SECONDS)
    await database.write(start_run, other, START)
    pages = [await database.read(list_runs, COPY, SCOPE, before, 2) for before in ("", ids[1])]
    assert [[run.id for run in page] for page in pages] == [ids[:2], ids[2:4]]
    assert await database.read(count_runs, COPY, SCOPE) == 5
    assert await database.read(find_run, COPY, "elsewhere", ids[0]) is None
    assert await database.read(find_run, "test.other", SCOPE, ids[0]) is None


@on_both_databases
async def test_runs_that_ended_long_ago_are_forgotten_at_the_next_start(database: Database) -> None:
    account = await make_account(database)
    old = await database.write(start_copy, account, uuid7(), 5, START)
    await database.write(end_run, old.id, START)
    kept = KEPT_SECONDS * MICROSECONDS
    second = await database.write(start_copy, account, uuid7(), 5, START + kept - 1)
    assert await database.read(count_runs, COPY, SCOPE) == 2
    await database.write(end_run, second.id, START + kept)
    third = await database.write(start_copy, account, uuid7(), 5, START + kept)
    found = await database.read(list_runs, COPY, SCOPE, "", 9)
    assert {run.id for run in found} == {second.id, third.id}


async def test_the_job_of_a_removed_run_ends(database: Database) -> None:
    clock = Clock()
    begun = await database.write(start_copy, await make_account(database), uuid7(), 5, START)
    await database.write(remove_runs, SCOPE)
    await database.write(add_run_fault, begun.id, "A", "too late", START)
    assert await database.read(find_run, COPY, SCOPE, begun.id) is None
    ended: list[Run] = []
    await run_due(database, [copying(database, clock, ended)], clock)
    (job,) = await database.read(all_jobs)
    assert (await database.read(find_job, job.id)) == job
    assert (job.state, ended) == ("succeeded", [])
    assert await database.read(list_effects) == []

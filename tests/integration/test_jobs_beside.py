"""The worker beside the planes: how it ends with them, and that it does not end before."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from cloudcore.clock import MICROSECONDS, system_clock
from cloudcore.db.base import Connection, Database
from cloudcore.jobs import outbox
from cloudcore.jobs.background import BackgroundTask, running
from cloudcore.jobs.kinds import Done, JobKind, Next
from cloudcore.jobs.queue import KEPT_SECONDS, Job, NewJob, enqueue
from cloudcore.jobs.worker import JobPace, JobWorker, divide_by_slots
from registry.composition.families import FAMILIES
from registry.composition.main import forget_ended
from tests.control_plane import count_rows
from tests.databases import add_account
from tests.dying import Kind, PassingDatabase
from tests.jobs import (
    COUNT,
    COUNTING,
    Hang,
    count_steps,
    enqueue_counts,
    get,
    unfinished,
    until,
    until_finished,
    with_effects,
)

pytestmark = with_effects


async def test_a_step_under_way_may_finish(database: Database) -> None:
    begun = asyncio.Event()

    async def step(job: Job) -> Next | Done:
        begun.set()
        await asyncio.sleep(0.05)  # the block ends meanwhile
        return await count_steps(job)

    (job,) = await database.write(enqueue_counts, 1, 2, system_clock())
    async with running(JobWorker(database, [JobKind(name=COUNT, step=step)])):
        await begun.wait()
    left = await get(database, job)
    assert (left.cursor, left.lease_token) == (1, None)  # any other may go on at once


async def test_a_step_that_does_not_finish_is_dropped(database: Database) -> None:
    hang = Hang()
    (job,) = await database.write(enqueue_counts, 1, 2, system_clock())
    async with running(JobWorker(database, [JobKind(name=COUNT, step=hang)])):
        await hang.begun.wait()
    assert hang.cancelled.is_set()
    left = await get(database, job)
    assert (left.state, left.cursor, left.fault) == ("running", None, None)


async def test_all_are_told_to_stop_before_one_is_waited_for() -> None:
    told: list[str] = []

    class Waiting(BackgroundTask):
        def __init__(self, name: str, stopped: asyncio.Event) -> None:
            super().__init__()
            self.name = name
            self._stopped = stopped

        def stop(self) -> None:
            self._stopped.set()

        async def run(self) -> None:
            await both[0].wait()
            await both[1].wait()
            told.append(self.name)

    both = asyncio.Event(), asyncio.Event()
    async with running(Waiting("first", both[0]), Waiting("second", both[1])):
        pass
    assert sorted(told) == ["first", "second"]


async def test_jobs_that_hang_hold_up_no_kind_with_slots_of_its_own(database: Database) -> None:
    hanging, all_hang = Counter[str](), asyncio.Event()

    async def hang(job: Job) -> Next | Done:
        hanging[job.kind] += 1
        if hanging == {"asks": 2, "runs": JobPace().slots}:
            all_hang.set()
        await asyncio.Event().wait()
        return Done()

    async def step(job: Job) -> Next | Done:
        return Done()

    kinds = [
        JobKind(name="asks", step=hang, slots=2),
        JobKind(name="runs", step=hang),
        JobKind(name="answers", step=step, slots=1),
        outbox.delivery(database, system_clock, []),
    ]

    def change(tx: Connection) -> None:
        enqueue(tx, NewJob("answers"), system_clock())
        outbox.emit(tx, "test.changed", add_account(tx, "acme"), {}, system_clock())

    left = [
        await database.write(enqueue, NewJob(kind), system_clock())
        for kind, most in (("asks", 2), ("runs", JobPace().slots))
        for _ in range(most + 1)
    ]

    async def are_others_done() -> bool:
        return sorted(await database.read(unfinished)) == sorted(left)

    async with AsyncExitStack() as resources:
        for chosen, pace in divide_by_slots(kinds, JobPace(poll_seconds=0.01)):
            await resources.enter_async_context(running(JobWorker(database, chosen, pace=pace)))
        await all_hang.wait()
        await database.write(change)
        await until(are_others_done)


class FailingOnce(PassingDatabase):
    """Meets a bug at its first query."""

    is_due = True

    async def before(self, kind: Kind, _call: object) -> None:
        if kind == "read" and self.is_due:
            self.is_due = False
            raise RuntimeError("a bug")


async def test_a_worker_that_failed_begins_again(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await database.write(enqueue_counts, 1, 2, system_clock())

    async with running(JobWorker(FailingOnce(database), [COUNTING])):
        await until_finished(database)
    (record,) = (each for each in caplog.records if each.name == "cloudcore.jobs.background")
    assert record.levelno == logging.ERROR
    assert "a bug" in str(record.exc_info)


async def test_a_registry_forgets_what_was_done_long_ago(
    database: Database, sqlite_database: str
) -> None:
    def emit(tx: Connection) -> None:
        outbox.emit(tx, "test.counted", add_account(tx, "acme"), {}, system_clock())

    await database.write(enqueue_counts, 1, 2, system_clock())
    await database.write(emit)
    kinds = [COUNTING, outbox.delivery(database, system_clock, [])]
    async with running(JobWorker(database, kinds)):
        await until_finished(database)
    for seconds, left in ((0, (2, 1)), (KEPT_SECONDS, (0, 0))):
        now = system_clock() + seconds * MICROSECONDS
        await forget_ended(database, lambda now=now: now, FAMILIES)  # type: ignore[misc]
        found = tuple(count_rows(sqlite_database, table) for table in ("jobs", "outbox"))
        assert found == left

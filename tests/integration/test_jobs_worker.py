"""Workers: steps and retries, wake-ups and polls, and their end beside the planes."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

import pytest

from cloudcore.clock import MICROSECONDS, system_clock
from cloudcore.db.base import Connection, Database
from cloudcore.db.opening import open_database
from cloudcore.jobs import background, outbox
from cloudcore.jobs.kinds import Done, JobKind, Next, StepFailed
from cloudcore.jobs.queue import KEPT_SECONDS, Job, LeaseTerms, NewJob, enqueue, lease
from cloudcore.jobs.worker import JobPace, JobWorker, divide_by_slots
from registry.composition.families import FAMILIES
from registry.composition.main import forget_ended
from tests.control_plane import count_rows
from tests.databases import add_account
from tests.dying import Kind, PassingDatabase
from tests.integration.counting import CountingDatabase
from tests.jobs import (
    COUNT,
    COUNTING,
    START,
    Clock,
    Hang,
    add_effect,
    all_jobs,
    count_steps,
    enqueue_counts,
    failing,
    get,
    list_effects,
    run_one,
    running,
    unfinished,
    until,
    until_finished,
    with_effects,
)

pytestmark = with_effects
NEVER_POLLS: Final = JobPace(poll_seconds=3600)
SECRET: Final = "s3cret"


async def test_a_step_whose_change_fails_leaves_nothing_and_tells_no_secret(
    database: Database,
) -> None:
    def refuse(job_id: str, tx: Connection) -> None:
        add_effect(job_id, 0, tx)
        raise InterruptedError(SECRET)

    async def step(job: Job) -> Done:
        return Done(partial(refuse, job.id))

    job = await run_one(database, step, max_attempts=1)
    assert job.fault is not None
    assert (job.state, job.fault.code) == ("failed", "INTERNAL_ERROR")
    assert SECRET not in job.fault.message
    assert await database.read(list_effects) == []
    fault = (await run_one(database, Hang(), max_attempts=1, step_seconds=0.01)).fault
    assert fault is not None
    assert fault.code == "TIMEOUT", "so is a step that hangs"


async def test_what_a_worker_gives_up_is_left_to_others(database: Database) -> None:
    hang = Hang()
    first = await database.write(enqueue, NewJob(COUNT, {}), system_clock())
    worker = JobWorker(database, [JobKind(name=COUNT, step=hang)])
    task = asyncio.create_task(worker.run())
    await hang.begun.wait()
    worker.give_up()
    await task
    assert hang.cancelled.is_set()
    second = await database.write(enqueue, NewJob(COUNT, {}), system_clock())
    found = [await get(database, each) for each in (first, second)]
    assert [(each.state, each.attempts) for each in found] == [("running", 1), ("queued", 0)]


async def test_retries_are_spaced_by_doubling_up_to_a_cap(database: Database) -> None:
    """Under a clock of our own and without chance, each pause is exact."""
    clock = Clock()
    tried: list[float] = []
    fail = failing()

    async def step(job: Job) -> Next | Done:
        tried.append((clock.now - START) / 1_000_000)
        return await fail(job)

    kind = JobKind(
        name=COUNT, step=step, max_attempts=7, first_retry_seconds=2, longest_retry_seconds=20
    )

    [identity] = await database.write(enqueue_counts, 1, 1, START)
    worker = JobWorker(database, [kind], pace=NEVER_POLLS, clock=clock, chance=lambda: 1.0)
    async with running(worker):
        for attempt in range(1, 8):

            async def tried_again(attempt: int = attempt) -> bool:
                job = await get(database, identity)
                return job.attempts == attempt and job.lease_token is None

            await until(tried_again)
            job = await get(database, identity)
            assert job.state == ("failed" if attempt == 7 else "running")
            if job.due_at is not None:
                clock.now = job.due_at - 1
                worker.wake()
                await asyncio.sleep(0.02)  # early: nothing may happen
                assert len(tried) == attempt
                clock.now = job.due_at
                worker.wake()
    assert tried == [0, 2, 6, 14, 30, 50, 70]
    assert job.fault is not None
    assert (job.fault.message, job.fault.occurrences) == ("attempt 7", 7)
    assert (job.fault.first_at, job.fault.last_at) == (START, START + 70_000_000)


def test_chance_takes_up_to_half_of_a_pause() -> None:
    pauses = {(1, 0): 0.5, (1, 1): 1, (2, 0.5): 1.5, (9, 0): 128, (10, 1): 300, (9999, 0): 150}
    assert {each: COUNTING.retry_seconds(*each) for each in pauses} == pauses


def note_end(tx: Connection, job: Job) -> Job:
    """Write the number of attempts there were."""
    add_effect(job.id, job.attempts, tx)
    return job


async def test_a_kind_says_what_it_commits_when_it_gives_up(database: Database) -> None:
    told: list[Job] = []
    job = await run_one(
        database,
        failing(),
        max_attempts=2,
        first_retry_seconds=0.001,
        gave_up=note_end,
        gave_up_committed=told.append,
    )
    assert told == [job]
    assert (job.state, job.attempts) == ("failed", 2)
    assert job.fault is not None
    assert (job.fault.code, job.fault.occurrences) == ("REFUSED", 2)
    assert await database.read(list_effects) == [(job.id, 2)]
    permanent = await run_one(database, failing(is_permanent=True))
    assert (permanent.state, permanent.attempts) == ("failed", 1)


async def test_what_fails_after_a_commit_fails_no_step(database: Database) -> None:
    told: list[object] = []

    def tell(result: object) -> None:
        told.append(result)
        raise InterruptedError(SECRET)

    async def step(job: Job) -> Next | Done:
        if job.cursor is None:
            return Next(1, partial(add_effect, job.id, 0), committed=tell)
        return Done(partial(add_effect, job.id, 1), committed=tell)

    job = await run_one(database, step, max_attempts=1)
    assert (job.state, job.fault) == ("succeeded", None)
    assert await database.read(list_effects) == [(job.id, 0), (job.id, 1)]
    assert told == [None, None]


async def test_what_cannot_be_given_up_has_not_ended(database: Database) -> None:
    """The job and what follows from its end are one transaction; it is tried after the lease."""
    refusals = [InterruptedError(SECRET)]
    clock = Clock()

    def gave_up(tx: Connection, job: Job) -> None:
        note_end(tx, job)
        if refusals:
            raise refusals.pop()

    async def refused() -> bool:
        return not refusals

    kind = JobKind(name=COUNT, step=failing(is_permanent=True), max_attempts=1, gave_up=gave_up)
    [identity] = await database.write(enqueue_counts, 1, 1, START)
    async with running(JobWorker(database, [kind], pace=NEVER_POLLS, clock=clock)):
        await until(refused)
    job = await get(database, identity)
    assert (job.state, job.fault) == ("running", None)
    assert await database.read(list_effects) == []
    clock.pass_seconds(60)
    async with running(JobWorker(database, [kind], pace=NEVER_POLLS, clock=clock)):
        await until_finished(database)
    assert (await get(database, identity)).state == "failed"
    assert len(await database.read(list_effects)) == 1


async def test_a_job_that_kills_its_workers_is_given_up(database: Database) -> None:
    """Whoever leases it after its last attempt ends it, and does no step of it."""
    steps = []

    async def step(job: Job) -> Done:
        steps.append(job)
        return Done()

    clock = Clock()
    [identity] = await database.write(enqueue_counts, 1, 1, START)
    for attempt in (1, 2, 3):
        terms = LeaseTerms(str(attempt), clock.now + 60_000_000, 1, {COUNT})
        [job] = await database.write(lease, terms, clock.now)
        assert job.attempts == attempt
        clock.pass_seconds(60)
    kind = JobKind(name=COUNT, step=step, max_attempts=3, gave_up=note_end)
    async with running(JobWorker(database, [kind], clock=clock)):
        await until_finished(database)
    ended = await get(database, identity)
    assert ended.fault is not None
    assert (ended.state, ended.fault.code) == ("failed", "WORKER_LOST")
    assert (ended.fault.occurrences, ended.finished_at) == (1, clock.now)
    assert len(await database.read(list_effects)) == 1
    assert steps == []


async def test_a_commit_is_heard_of_and_a_coming_moment_is_kept_without_polling(
    database: Database,
) -> None:
    counting = CountingDatabase(database)
    counting.start()
    async with running(JobWorker(counting, [COUNTING], pace=NEVER_POLLS)):
        await until_finished(database)
        new = NewJob(COUNT, 1, delay_seconds=0.2)
        await database.write(enqueue, new, system_clock())
        await until_finished(database)
        await asyncio.sleep(0.5)  # an idle worker asks nothing
        assert len(counting.seen) <= 10, [one.sqlite for one in counting.seen]


async def test_work_of_another_process_is_found_by_polling(
    database: Database, database_url: str
) -> None:
    async with running(JobWorker(database, [COUNTING], pace=JobPace(poll_seconds=0.05))):
        await asyncio.sleep(0)
        other = open_database(database_url)
        await other.write(enqueue_counts, 1, 1, system_clock())
        await until_finished(database)
        await other.close()


async def test_a_delay_holds_no_worker(database: Database) -> None:
    async def step(job: Job) -> Next | Done:
        change = partial(add_effect, job.id, job.cursor or 0)
        return Done(change) if job.cursor else Next(1, change, delay_seconds=30)

    clock = Clock()
    await database.write(enqueue_counts, 3, 2, START)
    pace = JobPace(slots=1, poll_seconds=3600)
    worker = JobWorker(database, [JobKind(name=COUNT, step=step)], pace=pace, clock=clock)

    async def all_wait() -> bool:
        jobs = await database.read(all_jobs)
        return [(job.cursor, job.due_at) for job in jobs] == [(1, START + 30_000_000)] * 3

    async with running(worker):
        await until(all_wait)
        clock.pass_seconds(30)
        worker.wake()
        await until_finished(database)
    assert Counter(step for _, step in await database.read(list_effects)) == {0: 3, 1: 3}


@pytest.mark.parametrize("ends", ["pauses", "fails"])
async def test_what_is_woken_while_a_step_runs_goes_on_when_it_ends(
    database: Database, ends: str
) -> None:
    """The step read what there was before; the wake comes, and then the step's long pause."""
    wake = NewJob(COUNT, dedup_key="k", hastens=True)
    looks: list[int] = []

    async def step(job: Job) -> Next | Done:
        looks.append(job.attempts)
        if len(looks) > 1:
            return Done()
        assert await database.write(enqueue, wake, START) == job.id
        if ends == "fails":
            raise StepFailed("TOO_EARLY", "there is nothing to do yet")
        return Next(None, delay_seconds=3600)

    kind = JobKind(name=COUNT, step=step, first_retry_seconds=3600, longest_retry_seconds=3600)
    woken = await database.write(enqueue, wake, START)
    async with running(JobWorker(database, [kind], clock=Clock())):
        await until_finished(database)
    assert (await get(database, woken)).state == "succeeded"
    assert looks == ([1, 2] if ends == "fails" else [1, 1])


async def test_a_step_that_wakes_its_own_job_goes_on_once(database: Database) -> None:
    """The wake is in the transaction that begins the next step, which so sees what it is about."""
    wake = NewJob(COUNT, dedup_key="k", hastens=True)

    async def step(job: Job) -> Next | Done:
        if job.cursor is None:
            return Next(1, lambda tx: enqueue(tx, wake, START))
        return Next(job.cursor + 1, delay_seconds=3600)

    woken = await database.write(enqueue, wake, START)

    async def waits() -> bool:
        return (await get(database, woken)).due_at == START + 3_600_000_000

    async with running(JobWorker(database, [JobKind(name=COUNT, step=step)], clock=Clock())):
        await until(waits)
    assert (await get(database, woken)).cursor == 2


async def test_a_step_under_way_may_finish(database: Database) -> None:
    begun = asyncio.Event()

    async def step(job: Job) -> Next | Done:
        begun.set()
        await asyncio.sleep(0.05)  # the block ends meanwhile
        return await count_steps(job)

    (job,) = await database.write(enqueue_counts, 1, 2, system_clock())
    async with background.running(JobWorker(database, [JobKind(name=COUNT, step=step)])):
        await begun.wait()
    left = await get(database, job)
    assert (left.cursor, left.lease_token) == (1, None)  # any other may go on at once


async def test_a_step_that_does_not_finish_is_dropped(database: Database) -> None:
    hang = Hang()
    (job,) = await database.write(enqueue_counts, 1, 2, system_clock())
    async with background.running(JobWorker(database, [JobKind(name=COUNT, step=hang)])):
        await hang.begun.wait()
    assert hang.cancelled.is_set()
    left = await get(database, job)
    assert (left.state, left.cursor, left.fault) == ("running", None, None)


async def test_all_are_told_to_stop_before_one_is_waited_for() -> None:
    told: list[str] = []

    class Waiting(background.BackgroundTask):
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
    async with background.running(Waiting("first", both[0]), Waiting("second", both[1])):
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
            await resources.enter_async_context(
                background.running(JobWorker(database, chosen, pace=pace))
            )
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

    async with background.running(JobWorker(FailingOnce(database), [COUNTING])):
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
    async with background.running(JobWorker(database, kinds)):
        await until_finished(database)
    for seconds, left in ((0, (2, 1)), (KEPT_SECONDS, (0, 0))):
        now = system_clock() + seconds * MICROSECONDS
        await forget_ended(database, lambda now=now: now, FAMILIES)  # type: ignore[misc]
        found = tuple(count_rows(sqlite_database, table) for table in ("jobs", "outbox"))
        assert found == left

"""The outbox: with the change or not at all, in order, at least once, account by account."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

import pytest

from cloudcore.clock import system_clock
from cloudcore.db.base import Connection, Database
from cloudcore.db.opening import open_database
from cloudcore.db.rows import BATCH
from cloudcore.jobs import outbox
from cloudcore.jobs.outbox import (
    UNDELIVERED_SECONDS,
    OutboxEvent,
    Subscriber,
    delivery,
    emit,
    forget_delivered,
    forget_undelivered,
)
from cloudcore.jobs.queue import Job
from cloudcore.jobs.worker import JobPace, JobWorker
from tests.databases import add_account, on_both_databases
from tests.dying import Kind, PassingDatabase
from tests.jobs import START, Clock, all_jobs, running, until, until_finished

TYPE: Final = "registry.tag.moved"
NEVER_POLLS: Final = JobPace(poll_seconds=3600)
TRIES: Final = 13
"""More than the attempts after which other jobs are given up."""


class Recorder:
    """Remembers what it was handed; refuses some of it."""

    def __init__(self, refuses: Callable[[OutboxEvent], bool] = lambda _: False) -> None:
        self.refuses = refuses
        self.handed: list[OutboxEvent] = []
        self.taken: dict[str, list[object]] = defaultdict(list)

    async def receive(self, event: OutboxEvent) -> None:
        await asyncio.sleep(0)
        self.handed.append(event)
        if self.refuses(event):
            raise InterruptedError
        self.taken[event.account_id].append(event.payload)


def deliverer(
    database: Database, *subscribers: Subscriber, pace: JobPace = NEVER_POLLS
) -> JobWorker:
    return JobWorker(database, [delivery(database, system_clock, subscribers)], pace=pace)


def emit_all(tx: Connection, account_id: str, payloads: Sequence[object]) -> list[str]:
    now = system_clock()
    return [emit(tx, TYPE, account_id, payload, now) for payload in payloads]


def pending(tx: Connection, account_id: str) -> list[object]:
    return [event.payload for event in outbox._pending(tx, account_id, 1000)]


@on_both_databases
async def test_an_event_is_there_if_and_only_if_its_change_is(database: Database) -> None:
    def refused(tx: Connection, account_id: str) -> None:
        emit(tx, TYPE, account_id, {"tag": "v1"}, START)
        raise InterruptedError

    account = await database.write(add_account, "a")
    with pytest.raises(InterruptedError):
        await database.write(refused, account)
    assert await database.read(pending, account) == []
    assert await database.read(all_jobs) == []
    [identity] = await database.write(emit_all, account, [{"tag": "v1"}])
    recorder = Recorder()
    async with running(deliverer(database, recorder)):
        await until_finished(database)
    [event] = recorder.handed
    assert (event.id, event.account_id, event.type) == (identity, account, TYPE)
    assert event.payload == {"tag": "v1"}


@on_both_databases
async def test_each_account_has_its_events_in_order(database: Database) -> None:
    """More than a batch, to two subscribers, from changes of one event and of several."""
    accounts = [await database.write(add_account, handle) for handle in "abc"]
    first, second = Recorder(), Recorder()
    async with running(deliverer(database, first, second)):
        for number in range(0, 60, 3):
            for account in accounts:
                await database.write(emit_all, account, [number, number + 1, number + 2])
        await until_finished(database)
    for recorder in (first, second):
        assert recorder.taken == {account: list(range(60)) for account in accounts}
        assert len({event.id for event in recorder.handed}) == 180


async def test_order_is_that_of_the_commits(database: Database, database_url: str) -> None:
    """Changes that begin at once on two processes' connections, each told how many came before."""

    def count(tx: Connection, account_id: str) -> None:
        # The account's job is locked from here on: nobody comes between these two lines.
        outbox._enqueue_delivery(tx, account_id, 0)
        emit(tx, TYPE, account_id, len(outbox._pending(tx, account_id, 1000)), 0)

    other = open_database(database_url)
    account = await database.write(add_account, "a")
    await asyncio.gather(
        *(one.write(count, account) for one in (database, other) for _ in range(50))
    )
    assert await database.read(pending, account) == list(range(100))
    await other.close()


async def test_no_event_is_left_behind_by_a_delivery_that_ends(
    database: Database, database_url: str
) -> None:
    """Emitters and workers on two processes' connections; nobody polls, so nothing helps out."""
    other = open_database(database_url)
    accounts = [await database.write(add_account, handle) for handle in "ab"]
    recorder = Recorder()
    async with (
        running(deliverer(database, recorder)),
        running(deliverer(other, recorder)),
    ):

        async def emit_many(into: Database, account: str) -> None:
            for number in range(50):
                await into.write(emit_all, account, [number])

        await asyncio.gather(
            *(
                emit_many(into, account)
                for into in (database, other)
                for account in accounts
                for _ in range(2)
            )
        )
        await until_finished(database)
    for account in accounts:
        assert await database.read(pending, account) == []
        assert len(recorder.taken[account]) == 200
    await other.close()


async def test_an_event_nobody_can_take_holds_back_its_own_account_only(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.CRITICAL, "cloudcore.jobs.worker"):
        clock = Clock()
        sick = await database.write(add_account, "sick")
        well = await database.write(add_account, "well")
        recorder = Recorder(lambda event: event.payload == "poison")
        worker = JobWorker(database, [delivery(database, clock, [recorder])], clock=clock)

        async def unfinished_of(account_id: str) -> list[Job]:
            jobs = await database.read(all_jobs)
            return [job for job in jobs if job.due_at and job.account_id == account_id]

        def emit_now(tx: Connection, account_id: str, payload: str) -> None:
            emit(tx, TYPE, account_id, payload, clock.now)

        async with running(worker):
            for payload in ("before", "poison", "after"):
                await database.write(emit_now, sick, payload)
            for attempts in range(1, TRIES):

                async def waits(attempts: int = attempts) -> bool:
                    [job] = await unfinished_of(sick)
                    return job.fault is not None and job.fault.occurrences == attempts

                worker.wake()
                await until(waits)
                await database.write(emit_now, well, f"{attempts}")

                async def well_served(attempts: int = attempts) -> bool:
                    worker.wake()
                    is_taken = len(recorder.taken[well]) == attempts
                    return is_taken and not await unfinished_of(well)

                await until(well_served)
                clock.pass_seconds(300)
            assert recorder.taken[sick] == ["before"]
            recorder.refuses = lambda _: False
            clock.pass_seconds(300)
            worker.wake()
            await until_finished(database)
        assert recorder.taken[sick] == ["before", "poison", "after"]
        assert recorder.taken[well] == [f"{attempts}" for attempts in range(1, TRIES)]
        poison = {event.id for event in recorder.handed if event.payload == "poison"}
        assert len(poison) == 1


class _NoCommit(PassingDatabase):
    """Its process dies before any step commits."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.died = asyncio.Event()

    async def before(self, kind: Kind, _call: object) -> None:
        if kind == "write":
            self.died.set()
            await asyncio.Event().wait()


async def test_a_death_before_the_mark_delivers_again_with_the_same_ids(database: Database) -> None:
    clock = Clock()
    account = await database.write(add_account, "a")
    recorder = Recorder()
    dying = _NoCommit(database)

    def emit_now(tx: Connection) -> list[str]:
        return [emit(tx, TYPE, account, number, clock.now) for number in range(3)]

    ids = await database.write(emit_now)
    kind = delivery(dying, clock, [recorder])
    task = asyncio.create_task(JobWorker(dying, [kind], clock=clock).run())
    await dying.died.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    clock.pass_seconds(60)
    async with running(JobWorker(database, [delivery(database, clock, [recorder])], clock=clock)):
        await until_finished(database)
    assert [event.id for event in recorder.handed] == ids * 2


@on_both_databases
async def test_only_events_delivered_long_ago_are_forgotten(database: Database) -> None:
    account = await database.write(add_account, "a")
    await database.write(emit_all, account, [1])
    async with running(deliverer(database, Recorder())):
        await until_finished(database)
    await database.write(emit_all, account, [2])
    now = system_clock()
    assert await database.write(forget_delivered, now) == 0
    kept = outbox.KEPT_SECONDS * 1_000_000
    assert await database.write(forget_delivered, now + kept) == 1
    assert await database.read(pending, account) == [2]


@on_both_databases
async def test_events_that_nobody_takes_are_forgotten_after_thirty_days(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """Of all accounts, in batches; what was delivered is none of them."""
    count = BATCH // 2 + 1

    clock = Clock()

    def emit_now(tx: Connection, account_id: str, payload: str, times: int = 1) -> None:
        for _ in range(times):
            emit(tx, TYPE, account_id, payload, clock.now)

    taken, *others = [await database.write(add_account, handle) for handle in "abc"]
    await database.write(emit_now, taken, "taken")
    async with running(deliverer(database, Recorder())):
        await until_finished(database)
    for account in others:
        await database.write(emit_now, account, "old", count)
    clock.pass_seconds(60)
    for account in others:
        await database.write(emit_now, account, "new")
    clock.pass_seconds(UNDELIVERED_SECONDS - 61)
    assert await forget_undelivered(database, clock) == 0
    clock.pass_seconds(1)
    assert await forget_undelivered(database, clock) == 2 * count
    assert [await database.read(pending, account) for account in others] == [["new"]] * 2
    # An account's delivery goes on with what is left.
    recorder = Recorder()
    async with running(deliverer(database, recorder)):
        await until_finished(database)
    assert recorder.taken == {account: ["new"] for account in others}
    late = system_clock() + outbox.KEPT_SECONDS * 1_000_000
    assert await database.write(forget_delivered, late) == 3
    assert f"deleted {2 * count} events" in caplog.text

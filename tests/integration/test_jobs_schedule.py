"""The schedule: each turn taken once, by one worker at a time, whatever becomes of workers."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import pytest

from cloudcore.clock import MICROSECONDS, system_clock
from cloudcore.db.base import Database
from cloudcore.db.opening import open_database
from cloudcore.errors import Unavailable
from cloudcore.jobs import schedule_rows
from cloudcore.jobs.schedule import Scheduled, Scheduler, SchedulerPace
from tests.databases import on_both_databases
from tests.dying import Kind, PassingDatabase
from tests.integration.counting import CountingDatabase
from tests.jobs import START, Clock, until, with_effects
from tests.schedules import Turn, all_turns
from tests.waiting import until_so

pytestmark = with_effects

MINUTE: Final = 60 * MICROSECONDS
FIRST: Final = (START // MINUTE + 1) * MINUTE
"""When the first turn of a minute begins."""


class Chore:
    """Counts its turns, and how many are taken at once; `may_end` keeps it in a turn."""

    def __init__(self, name: str = "chore") -> None:
        self.name = name
        self.turns = 0
        self.cancelled = 0
        self.at_once = 0
        self.most_at_once = 0
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.error: Exception | None = None

    async def run(self) -> None:
        self.turns += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(0)
            await self.may_end.wait()
            if self.error is not None:
                raise self.error
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.at_once -= 1

    def every(self, seconds: float = 60, longest_seconds: float = 3600) -> Scheduled:
        return Scheduled(self.name, seconds, self.run, longest_seconds)


def scheduler(
    database: Database, *chores: Scheduled, clock: Callable[[], int], lease_seconds: float = 60
) -> Scheduler:
    """Return a scheduler without chance, which looks by itself once an hour."""
    pace = SchedulerPace(lease_seconds=lease_seconds, look_seconds=3600)
    return Scheduler(database, chores, pace=pace, clock=clock, chance=lambda: 0.0)


@asynccontextmanager
async def running(*schedulers: Scheduler) -> AsyncIterator[None]:
    """Run schedulers, and stop them with grace."""
    tasks = [asyncio.create_task(each.run()) for each in schedulers]
    try:
        yield
    except BaseException:
        for task in tasks:
            task.cancel()
        raise
    for each in schedulers:
        each.stop()
    await asyncio.gather(*tasks)


async def turn_of(database: Database, chore: Chore) -> Turn:
    return (await database.read(all_turns))[chore.name]


async def due(database: Database, chore: Chore, *, holds: bool = False) -> Clock:
    """Let the first turn of a chore be due now, which it `holds` until it may end."""
    await database.write(schedule_rows.insert_missing, {chore.name: FIRST})
    if holds:
        chore.may_end.clear()
    clock = Clock()
    clock.now = FIRST
    return clock


async def until_ended(database: Database, chore: Chore, count: int) -> None:
    """Wait until so many turns have begun, and all have ended."""

    async def ended() -> bool:
        if chore.turns < count:  # before the row is read: a turn may begin meanwhile
            return False
        turn = (await database.read(all_turns)).get(chore.name)
        return turn is not None and turn.lease_token is None

    await until(ended)


async def test_workers_take_each_turn_once_and_never_two_at_once(
    database: Database, database_url: str
) -> None:
    other = open_database(database_url)
    clock = Clock()
    chore = Chore()
    both = [scheduler(each, chore.every(), clock=clock) for each in (database, other)]
    await database.write(schedule_rows.insert_missing, {chore.name: FIRST})
    async with running(*both):
        for count in range(1, 21):
            clock.now = FIRST + (count - 1) * MINUTE
            for each in both:
                each.wake()
            await until_ended(database, chore, count)
            assert chore.turns == count
            assert (await turn_of(database, chore)).due_at == clock.now + MINUTE
    assert (chore.turns, chore.most_at_once) == (20, 1)
    await other.close()


async def test_a_turn_does_not_begin_before_its_moment(database: Database) -> None:
    clock, chore = Clock(), Chore()
    counting = CountingDatabase(database)
    one = scheduler(counting, chore.every(), clock=clock)
    async with running(one):
        await until_so(lambda: schedule_rows._LIST in counting.seen)
        clock.now = FIRST - 1
        one.wake()
        await asyncio.sleep(0.02)
        assert chore.turns == 0
        clock.now = FIRST
        one.wake()
        await until_ended(database, chore, 1)


async def test_what_was_due_while_nobody_ran_is_done_at_once(database: Database) -> None:
    """Once, however many turns were missed."""
    clock, chore = Clock(), Chore()
    async with running(scheduler(database, chore.every(), clock=clock)):
        await until_ended(database, chore, 0)
    clock.now = FIRST + 10 * MINUTE + 1
    async with running(scheduler(database, chore.every(), clock=clock)):
        await until_ended(database, chore, 1)
    turn = await turn_of(database, chore)
    assert (chore.turns, turn.due_at, turn.ended_at) == (1, FIRST + 11 * MINUTE, clock.now)


async def test_a_turn_set_while_its_row_is_read_slowly_is_not_taken_for_one_of_a_wrong_clock(
    database: Database,
) -> None:
    clock, chore = Clock(), Chore()
    await database.write(schedule_rows.insert_missing, {chore.name: FIRST + 10 * MINUTE})

    class Slow(PassingDatabase):
        async def before(self, kind: Kind, call: Callable[..., object]) -> None:
            if call is schedule_rows.due_times:
                clock.now = FIRST + 9 * MINUTE

    async with running(scheduler(Slow(database), chore.every(), clock=clock)):
        await until_so(lambda: clock.now > FIRST)
        await asyncio.sleep(0.02)
    assert (chore.turns, (await turn_of(database, chore)).due_at) == (0, FIRST + 10 * MINUTE)


@on_both_databases
async def test_a_dead_workers_turn_is_taken_after_its_lease(database: Database) -> None:
    chore = Chore()
    clock = await due(database, chore)
    end = FIRST + MINUTE
    for token, now, taken in (("dead", FIRST, [chore.name]), ("other", end - 1, [])):
        leased = await database.write(schedule_rows.lease, [chore.name], token, end, now)
        assert leased == taken
    one = scheduler(database, chore.every(3600), clock=clock)
    async with running(one):
        await asyncio.sleep(0.02)
        assert chore.turns == 0
        clock.now = end
        one.wake()
        await until_ended(database, chore, 1)
    late = (chore.name, "dead", end, None)
    assert not await database.write(schedule_rows.end, *late, clock.now)
    assert (await turn_of(database, chore)).due_at > end


async def test_a_failure_is_logged_and_tried_again_at_the_next_turn(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    clock, chore = Clock(), Chore()
    one = scheduler(database, chore.every(), clock=clock)
    errors = [Unavailable("no room"), Unavailable("no room"), RuntimeError("s3cret"), None]
    faults = []
    await database.write(schedule_rows.insert_missing, {chore.name: FIRST})
    async with running(one):
        for count, error in enumerate(errors):
            chore.error = error
            clock.now = FIRST + count * MINUTE
            one.wake()
            await until_ended(database, chore, count + 1)
            faults.append((await turn_of(database, chore)).fault)
    _, second, third, none = faults
    assert second is not None
    assert third is not None
    assert (second.message, second.occurrences, second.first_at) == ("no room", 2, FIRST)
    assert (third.code, third.occurrences) == ("INTERNAL_ERROR", 1)
    assert "s3cret" not in third.message
    assert none is None
    told = Counter((record.levelno, bool(record.exc_info)) for record in caplog.records)
    assert told == {(logging.WARNING, False): 2, (logging.ERROR, True): 1}


async def test_a_turn_that_takes_too_long_is_ended(database: Database) -> None:
    chore = Chore()
    clock = await due(database, chore, holds=True)
    async with running(scheduler(database, chore.every(longest_seconds=0.01), clock=clock)):
        await until_ended(database, chore, 1)
    fault = (await turn_of(database, chore)).fault
    assert fault is not None
    assert (fault.code, chore.cancelled) == ("TIMEOUT", 1)


async def test_the_lease_of_a_long_turn_is_renewed(database: Database, database_url: str) -> None:
    """For more than two leases; meanwhile another worker begins none.

    The clock goes on with each renewal, however late that is on a busy machine.
    """

    other, chore = open_database(database_url), Chore()
    clock = await due(database, chore, holds=True)
    both = [
        scheduler(each, chore.every(3600), clock=clock, lease_seconds=0.3)
        for each in (database, other)
    ]
    async with running(*both):

        async def renewed() -> bool:
            for each in both:
                each.wake()
            turn = await turn_of(database, chore)
            return turn.lease_token is not None and turn.due_at == clock.now + 300_000

        for _ in range(8):
            await until(renewed)
            clock.pass_seconds(0.1)
        chore.may_end.set()
        await until_ended(database, chore, 1)
    assert (chore.turns, chore.most_at_once, chore.cancelled) == (1, 1, 0)
    await other.close()


@on_both_databases
async def test_a_worker_whose_lease_was_taken_ends_its_turn(database: Database) -> None:
    """It finds out at the next renewal, and leaves the row to the other."""
    chore = Chore()
    clock = await due(database, chore, holds=True)
    async with running(scheduler(database, chore.every(), clock=clock, lease_seconds=0.3)):
        await until_so(lambda: chore.turns == 1)
        taken: list[str] = []
        while not taken:  # unless it renews at that very moment
            clock.pass_seconds(1)
            end = clock.now + MINUTE
            terms = [chore.name], "other", end, clock.now
            taken = await database.write(schedule_rows.lease, *terms)
        await until_so(lambda: chore.cancelled == 1)
        turn = await turn_of(database, chore)
        assert (turn.lease_token, turn.due_at) == ("other", end)


async def test_a_worker_that_is_told_to_end_leaves_the_turn_to_others_at_once(
    database: Database,
) -> None:
    chore = Chore()
    clock = await due(database, chore, holds=True)
    task = asyncio.create_task(scheduler(database, chore.every(), clock=clock).run())
    await until_so(lambda: chore.turns == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    turn = await turn_of(database, chore)
    assert (turn.lease_token, turn.due_at, turn.ended_at) == (None, FIRST, None)
    chore.may_end.set()
    async with running(scheduler(database, chore.every(), clock=clock)):
        await until_ended(database, chore, 2)


async def test_a_clock_that_was_wrong_keeps_no_chore_from_its_turn(database: Database) -> None:
    clock, chore = Clock(), Chore()
    clock.pass_seconds(10 * 24 * 3600)
    one = scheduler(database, chore.every(), clock=clock)
    async with running(one):
        await until_ended(database, chore, 0)
        clock.now = START
        one.wake()
        await until_ended(database, chore, 1)
    assert (await turn_of(database, chore)).due_at == FIRST


class RefusingReads(PassingDatabase):
    """Cannot be read while `refuses`."""

    refuses = 0

    async def before(self, kind: Kind, _call: object) -> None:
        if kind == "read" and self.refuses:
            self.refuses -= 1
            raise Unavailable("not now")


async def test_a_database_that_is_away_costs_the_time_it_is_away(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    clock, chore = Clock(), Chore()
    refusing = RefusingReads(database)
    refusing.refuses = 2
    clock.now = FIRST
    await database.write(schedule_rows.insert_missing, {chore.name: FIRST})
    pace = SchedulerPace(retry_seconds=0.01, spread_seconds=0)
    async with running(Scheduler(refusing, [chore.every()], pace=pace, clock=clock)):
        await until_ended(database, chore, 1)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


async def until_waiting(one: Scheduler, clock: Clock) -> None:
    """Wait until a scheduler knows of no turn that is due."""
    await until_so(lambda: not one._under_way and min(one._due_at.values(), default=0) > clock.now)


async def test_an_idle_hour_costs_next_to_nothing(database: Database) -> None:
    """Chores of one period share a look and a lease; who takes no turn only looks."""
    clock = Clock()
    clock.now = FIRST - MINUTE // 2
    chores = [Chore(f"minute {n}") for n in range(5)] + [Chore(f"hour {n}") for n in range(3)]
    values = [each.every(60 if "minute" in each.name else 3600) for each in chores]
    busy, idle = CountingDatabase(database), CountingDatabase(database)
    taking = scheduler(busy, *values, clock=clock)
    looking = scheduler(idle, *values, clock=clock)
    async with running(taking, looking):
        await until_waiting(taking, clock)
        await until_waiting(looking, clock)
        busy.start()
        idle.start()
        for minute in range(60):
            clock.now = FIRST + minute * MINUTE
            taking.wake()
            await until_waiting(taking, clock)
            looking.wake()
            await until_waiting(looking, clock)
    assert sum(chore.turns for chore in chores) == 303
    assert (idle.changes, len(idle.seen)) == (0, 60)
    seen = Counter(busy.seen)
    assert seen[schedule_rows._LIST] == 60
    assert seen[schedule_rows._LEASE] == 60
    assert seen[schedule_rows._END] == sum(chore.turns for chore in chores)
    assert len(busy.seen) == 60 + 60 + 303  # seven a minute


async def test_of_two_chores_of_one_name_none_runs(database: Database) -> None:
    twice = [Chore().every(), Chore().every(3600)]
    with pytest.raises(ValueError, match="the same name"):
        scheduler(database, *twice, clock=system_clock)


@on_both_databases
async def test_rows_of_other_names_are_left_alone(database: Database) -> None:
    """Those of a newer release that runs beside this one."""
    chore = Chore()
    await database.write(schedule_rows.insert_missing, {"foreign": START})
    clock = await due(database, chore)
    await database.write(schedule_rows.insert_missing, {chore.name: FIRST, "foreign": FIRST})
    async with running(scheduler(database, chore.every(), clock=clock)):
        await until_ended(database, chore, 1)
    untouched = Turn("foreign", START, None, None, None, None)
    assert (await database.read(all_turns))["foreign"] == untouched

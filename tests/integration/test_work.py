"""The work of a resource: its steps, faults and tries, and what wins over them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import pytest
from msgspec import structs
from sqlalchemy import bindparam
from sqlalchemy import update as sql_update

from cloudcore.db.base import Connection, Database
from cloudcore.db.statement import Statement
from cloudcore.errors import Conflict, NotFound, Unavailable
from cloudcore.jobs.kinds import StepFailed
from cloudcore.jobs.tables import jobs
from cloudcore.resources.workflow import Goal, Problem, Step, StepAttempt, StepDone, StepRetry, Work
from cloudcore.wire import rfc3339
from tests.beacons import (
    BEACONS,
    BUILDING,
    FIRST_RETRY,
    LONGEST_RETRY,
    REMOVAL,
    ROWS,
    WORK,
    Beacon,
    BeaconNeeds,
    Outcome,
    add_owner,
    find,
    make_beacons,
    new_beacon,
)
from tests.databases import on_both_databases
from tests.jobs import Clock, all_jobs, run_due

SECRET: Final = "s3cret"
NO_OIL: Final = StepFailed("NO_OIL", "there is no oil")
PLACES: Final = (*BUILDING, *(f"{each} done" for each in BUILDING))
_SET_CURSOR: Final = Statement(sql_update(jobs).values(cursor=bindparam("to_be")))


class World:
    """Beacons on a database, under a clock that stands still."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.clock = Clock()
        self.needs = BeaconNeeds(database, folder, self.clock, self._come_to)
        self.at: dict[str, Callable[[], Awaitable[None]]] = {}
        """What happens at a place of a step."""

    async def _come_to(self, place: str) -> None:
        if place in self.at:
            await self.at[place]()

    def fails(self, place: str, error: Exception) -> None:
        """Let a step fail at a place until `self.at` is cleared."""

        async def fail() -> None:
            raise error

        self.at[place] = fail

    async def make(self) -> Beacon:
        return await new_beacon(self.database, self.clock())

    async def work(self, after: float = 0) -> None:
        self.clock.pass_seconds(after)
        await run_due(self.database, [WORK.job_kind(self.needs)], self.clock)

    async def show(self, made: Beacon) -> Beacon:
        found = await self.database.read(find, made.id)
        assert found is not None
        return found

    async def change(self, made: Beacon, height: int) -> None:
        await self.database.write(BEACONS.update, made, {"height": height}, self.clock())

    async def delete(self, made: Beacon) -> None:
        await self.database.write(BEACONS.remove, made, self.clock())

    async def is_gone(self, made: Beacon) -> bool:
        """Return True if a beacon is gone with all its pieces, and no job is left over."""
        left = await self.database.read(all_jobs)
        assert {job.state for job in left} == {"succeeded"}
        return await self.database.read(find, made.id) is None and self.needs.pieces() == []


@pytest.fixture
async def world(database: Database, metadata_url: str, tmp_path: Path) -> World:
    make_beacons(metadata_url)
    await add_owner(database)
    (tmp_path / "shore").mkdir()
    return World(database, tmp_path / "shore")


@on_both_databases
async def test_steps_follow_one_another_and_each_is_done_once(world: World) -> None:
    made = await world.make()
    assert made.status == "building"
    world.clock.pass_seconds(1)
    await world.work()
    lit = await world.show(made)
    assert (lit.status, lit.built, lit.updated_at) == ("lit", 1, world.clock())
    assert world.needs.steps_of(made.id) == [*BUILDING]
    assert world.needs.pieces() == ["ground 10", "lamp 10", "tower 10"]
    (job,) = await world.database.read(all_jobs)
    assert (job.kind, job.state, job.resource) == (
        "test.beacon.work",
        "succeeded",
        BEACONS.of.crn_of(made),
    )
    await world.delete(made)
    assert (await world.show(made)).status == "deleting"
    await world.work()
    assert await world.is_gone(made)
    assert world.needs.steps_of(made.id) == [*BUILDING, *REMOVAL]


@on_both_databases
async def test_a_step_that_fails_is_a_fault_and_is_tried_again_at_longer_and_longer_pauses(
    world: World,
) -> None:
    made = await world.make()
    world.fails("tower", StepFailed("NO_STONES", "the quarry is closed"))
    await world.work()
    (fault,) = (await world.show(made)).faults
    assert (fault.code, fault.message) == ("NO_STONES", "the quarry is closed")
    assert (fault.occurrences, fault.first_at, fault.last_at) == (1, world.clock(), world.clock())
    pauses = (FIRST_RETRY, 2 * FIRST_RETRY, 4 * FIRST_RETRY, LONGEST_RETRY, LONGEST_RETRY)
    for tries, pause in enumerate(pauses, 1):
        await world.work(after=pause - 1)
        assert world.needs.steps_of(made.id).count("tower") == tries
        await world.work(after=1)
        (fault,) = (await world.show(made)).faults
        assert (fault.occurrences, fault.last_at) == (tries + 1, world.clock())
    shown = json.loads(msgspec.json.encode(BEACONS.one(await world.show(made))))["beacon"]
    assert shown["status"] == "building"
    assert shown["faults"] == [
        {
            "code": "NO_STONES",
            "severity": "warning",
            "message": "the quarry is closed",
            "details": {},
            "first_at": rfc3339(fault.first_at),
            "last_at": rfc3339(fault.last_at),
            "occurrences": len(pauses) + 1,
        }
    ]
    world.fails("tower", ValueError(SECRET))
    await world.work(after=LONGEST_RETRY)
    world.fails("tower", Unavailable("the ferry does not run"))
    await world.work(after=LONGEST_RETRY)
    faults = (await world.show(made)).faults
    assert [each.code for each in faults] == ["NO_STONES", "INTERNAL_ERROR", "SERVICE_UNAVAILABLE"]
    assert faults[-1].message == "the ferry does not run"
    assert SECRET not in repr(faults)
    world.at.clear()
    await world.work(after=LONGEST_RETRY)
    lit = await world.show(made)
    assert (lit.status, lit.faults) == ("lit", ())
    # The steps before were not done again.
    assert world.needs.steps_of(made.id).count("ground") == 1


async def test_a_newer_wish_wins_over_a_step_under_way_whose_outcome_is_kept(
    world: World,
) -> None:
    for place in PLACES:
        made = await world.make()
        step = place.split(maxsplit=1)[0]

        async def change(made: Beacon = made) -> None:
            world.at.clear()
            await world.change(made, 20)

        world.at[place] = change
        await world.work()
        done = BUILDING[: BUILDING.index(step) + 1]
        # The first step goes on to its own second: the newer goal begins with it, too.
        assert world.needs.steps_of(made.id) == [*done, *BUILDING]
        lit = await world.show(made)
        assert (lit.status, lit.height, lit.generation, lit.built) == ("lit", 20, 2, 2)
        assert world.needs.pieces() == ["ground 20", "lamp 20", "tower 20"]
        await world.delete(made)
        await world.work()
        assert await world.is_gone(made)


async def test_a_newer_wish_does_not_wait_for_the_pause_of_a_failed_step(world: World) -> None:
    """Nor if it comes while the step fails."""
    made = await world.make()
    world.fails("lamp", NO_OIL)
    await world.work()
    world.at.clear()
    await world.work(after=1)
    assert (await world.show(made)).status == "building"
    await world.change(made, 20)
    await world.work()
    assert (await world.show(made)).status == "lit"
    assert world.needs.steps_of(made.id) == [*BUILDING, *BUILDING]

    async def change_and_fail() -> None:
        world.at.clear()
        await world.change(made, 21)
        raise NO_OIL

    await world.change(made, 30)
    world.at["lamp"] = change_and_fail
    await world.work()
    lit = await world.show(made)
    assert (lit.status, lit.height) == ("lit", 21)


@on_both_databases
async def test_a_deletion_wins_in_every_state(world: World) -> None:
    for place in PLACES:  # while a step is under way
        made = await world.make()
        world.at[place] = partial(world.delete, made)
        await world.work()
        world.at.clear()
        assert await world.is_gone(made)
        begun = BUILDING[: BUILDING.index(place.split()[0]) + 1]
        assert world.needs.steps_of(made.id) == [*begun, *REMOVAL]
    made = await world.make()  # while one waits for another try
    world.fails("tower", NO_OIL)
    await world.work()
    await world.delete(made)
    await world.work()
    assert await world.is_gone(made)
    world.at.clear()
    made = await world.make()  # before the first one
    await world.delete(made)
    await world.delete(made)
    await world.work()
    assert await world.is_gone(made)
    assert world.needs.steps_of(made.id) == [*REMOVAL]
    with pytest.raises(NotFound):
        await world.delete(made)
    made = await world.make()
    await world.delete(made)  # which needs no step
    work = Work[Beacon, BeaconNeeds](ROWS, goal=lambda _found, _now: None, steps={})
    await run_due(world.database, [work.job_kind(world.needs)], world.clock)
    assert await world.is_gone(made)


async def test_one_that_is_being_deleted_is_not_changed_and_stays_until_all_is_gone(
    world: World,
) -> None:
    made = await world.make()
    await world.work()
    world.fails("tear_down", StepFailed("STORM", "not in this weather"))
    await world.delete(made)
    await world.work()
    with pytest.raises(Conflict) as refused:
        await world.change(made, 20)
    assert refused.value.params["reason"] == "being_deleted"
    held = await world.database.write(ROWS.hold, made.account_id, made.id)
    assert held is None, "what would refer to it from now on would keep its row for ever"
    await world.delete(made)
    await world.work(after=FIRST_RETRY)
    shown = await world.show(made)
    assert shown.status == "deleting"
    assert [(each.code, each.occurrences) for each in shown.faults] == [("STORM", 2)]
    world.at.clear()
    await world.work(after=2 * FIRST_RETRY)
    assert await world.is_gone(made)
    assert world.needs.steps_of(made.id).count("put_out") == 1


async def test_a_name_is_free_again_when_its_bearer_is_gone(world: World) -> None:
    first = await new_beacon(world.database, world.clock(), "north")
    await world.delete(first)
    with pytest.raises(Conflict):
        await new_beacon(world.database, world.clock(), "north")
    await world.work()
    await new_beacon(world.database, world.clock(), "north")


async def test_a_last_step_that_leaves_all_as_it_was_is_not_done_again_at_once(
    world: World,
) -> None:
    runs = 0

    async def idle(_found: Beacon, _needs: BeaconNeeds, _attempt: StepAttempt) -> StepDone[Beacon]:
        nonlocal runs
        runs += 1
        return StepDone()

    work = Work[Beacon, BeaconNeeds](
        ROWS, goal=lambda _found, _now: Goal("idle"), steps={"idle": Step(idle, 30)}
    )
    await world.make()
    kinds = [work.job_kind(world.needs)]
    await run_due(world.database, kinds, world.clock)
    assert runs == 1
    world.clock.pass_seconds(29)
    await run_due(world.database, kinds, world.clock)
    assert runs == 1
    world.clock.pass_seconds(1)
    await run_due(world.database, kinds, world.clock)
    assert runs == 2


async def test_a_step_can_wait_end_with_a_fault_and_keep_those_of_others(world: World) -> None:
    outcomes: list[Outcome] = [
        StepRetry(seconds=7, faults=[Problem("A", "a", "left")]),
        StepRetry(seconds=7),
        StepDone(next="lamp", faults=[Problem("B", "b")], seconds=3),
        StepRetry(faults=[Problem("TIMEOUT", "t")], seconds=0),
        StepDone(next="ground", keeps_faults=True),
        StepDone(
            change=lambda found, _now: structs.replace(found, status="failed"),
            faults=[Problem("A", "c")],
        ),
    ]
    attempts: list[StepAttempt] = []

    async def play(_found: Beacon, _needs: BeaconNeeds, attempt: StepAttempt) -> Outcome:
        attempts.append(attempt)
        return outcomes[len(attempts) - 1]

    steps = {name: Step[Beacon, BeaconNeeds](play) for name in BUILDING}
    work = Work[Beacon, BeaconNeeds](
        ROWS,
        goal=lambda found, _now: None if found.status == "failed" else Goal("ground"),
        steps=steps,
    )
    made = await world.make()
    kinds = [work.job_kind(world.needs)]
    for pause in (0, 7, 7, 3):
        world.clock.pass_seconds(pause)
        await run_due(world.database, kinds, world.clock)
    shown = await world.show(made)
    assert shown.status == "failed"
    assert [(each.code, each.subject, each.message) for each in shown.faults] == [
        ("A", "left", "a"),
        ("B", "", "b"),
        ("A", "", "c"),
    ]
    assert [(each.step, each.tries) for each in attempts] == [
        ("ground", 0),
        ("ground", 0),
        ("ground", 0),
        ("lamp", 0),
        ("lamp", 0),
        ("ground", 0),
    ]


async def test_what_else_is_stored_is_stored_with_the_record_or_not_at_all(world: World) -> None:
    made = await world.make()

    def refuse(_tx: Connection, before: Beacon, after: Beacon) -> None:
        assert (before.height, after.height) == (10, 11)
        raise ValueError(SECRET)

    async def raise_height(
        found: Beacon, _needs: BeaconNeeds, _attempt: StepAttempt
    ) -> StepDone[Beacon]:
        return StepDone(
            change=lambda current, _now: structs.replace(current, height=11), also=refuse
        )

    work = Work[Beacon, BeaconNeeds](
        ROWS, goal=lambda _found, _now: Goal("up"), steps={"up": Step(raise_height)}
    )
    await run_due(world.database, [work.job_kind(world.needs)], world.clock)
    assert (await world.show(made)).height == 10


def replace_cursor(tx: Connection, to_be: str) -> None:
    tx.execute(_SET_CURSOR, to_be=to_be)


async def test_work_ends_if_the_record_is_gone_and_begins_anew_at_a_cursor_of_another_version(
    world: World,
) -> None:
    for cursor in ('{"task":"ground"}', '[["ground",1],"dig",3,0]', '"x"'):
        made = await world.make()
        await world.database.write(partial(replace_cursor, to_be=cursor))
        await world.work()
        assert world.needs.steps_of(made.id) == [*BUILDING]
        await world.delete(made)
        await world.work()
    made = await world.make()

    async def vanish() -> None:
        await world.database.write(lambda tx: ROWS.remove(tx, made, 0))

    world.at["tower"] = vanish
    await world.work()
    found = await world.database.read(all_jobs)
    (job,) = [each for each in found if each.arguments["beacon_id"] == made.id]
    assert (job.state, job.fault) == ("succeeded", None)
    assert world.needs.steps_of(made.id) == ["ground", "tower"]

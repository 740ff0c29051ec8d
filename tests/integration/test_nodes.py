"""Machines: who is there, whose name is whose, and what becomes of what is on a lost one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any, Final

import pytest
from msgspec import structs
from sqlalchemy import Index

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Database
from cloudcore.db.schema import one_of
from cloudcore.errors import Conflict
from cloudcore.jobs.background import running
from cloudcore.nodes import rows
from cloudcore.nodes.node import NODE_LOST, Node, Watch
from cloudcore.nodes.placed import Placed
from cloudcore.nodes.rows import Placing
from cloudcore.nodes.watcher import NodeWatcher, identity_of
from cloudcore.resources.resource import DELETING, Resource, fixed, own
from cloudcore.resources.rows import Rows
from cloudcore.resources.workflow import Goal, Step, StepAttempt, StepDone, Work
from registry.metadata.database import migration_connection
from tests.beacons import BeaconNeeds
from tests.databases import on_both_databases
from tests.jobs import Clock, run_due
from tests.kms_world import ACME, add_account


class Mill(Placed, frozen=True, kw_only=True):
    """A thing on a machine."""

    name: Annotated[str, fixed()]
    status: Annotated[str, own()] = "waiting"


ROWS: Final = Rows(
    Resource(record=Mill, service="test", one="mill", many="mills"),
    one_of("status", "waiting", "active", "degraded", DELETING),
    Index("ix_mills_node_id", "node", "id"),
)
ROWS.table.metadata.remove(ROWS.table)  # the migrations of the product know nothing of it


async def _grind(_found: Mill, _needs: BeaconNeeds, _attempt: StepAttempt) -> StepDone[Mill]:
    return StepDone(change=lambda found, _now: structs.replace(found, status="active"))


WORK: Final = Work(
    ROWS,
    goal=lambda found, _now: None if found.status == "active" else Goal("grind"),
    steps={"grind": Step(_grind)},
    node_of=lambda found: found.node,
)
PLACING: Final = Placing(ROWS, WORK.wake)


class World:
    """Mills on two machines."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.folder = folder
        self.clock = Clock()

    async def claim(self, name: str, identity: str, *capabilities: str) -> None:
        node = Node(name, self.folder, capabilities)
        await self.database.write(rows.claim, node, identity, self.clock())

    async def make(self, node: str, status: str = "active") -> Mill:
        moment, identity = self.clock(), uuid7()
        new = Mill(
            id=identity,
            account_id=ACME,
            region="local",
            created_at=moment,
            updated_at=moment,
            name=f"m{identity[-12:]}",
            node=node,
            status=status,
        )
        return await self.database.write(ROWS.add, new)

    async def look(self, *, after: float = 0) -> None:
        self.clock.pass_seconds(after)
        await rows.look(self.database, self.clock, [PLACING])

    async def show(self, made: Mill) -> tuple[str, list[str]]:
        found = await self.database.read(ROWS.find, ACME, made.id)
        assert found is not None
        return found.status, [each.code for each in found.faults]

    def watcher(self, node: Node, *watches: Watch, **more: Any) -> NodeWatcher:  # noqa: ANN401
        identity = identity_of(node.folder)
        return NodeWatcher(self.database, self.clock, node, identity, watches, **more)

    async def work(self, node: str) -> None:
        needs = BeaconNeeds(self.database, self.folder, self.clock)
        await run_due(self.database, [WORK.job_kind(needs, node)], self.clock)


@pytest.fixture
async def world(database: Database, metadata_url: str, tmp_path: Path) -> World:
    with migration_connection(metadata_url) as connection:
        ROWS.table.create(connection)
    await database.write(add_account, ACME)
    return World(database, tmp_path)


@on_both_databases
async def test_what_is_on_a_lost_machine_says_so_until_the_machine_is_back(world: World) -> None:
    await world.claim("east", "1")
    await world.claim("west", "2")
    mills = [await world.make("east") for _ in range(3)]
    going, other = await world.make("east", DELETING), await world.make("west")
    await world.look()
    assert await world.show(mills[0]) == ("active", [])

    world.clock.pass_seconds(rows.LOST_SECONDS + 1)
    assert await world.database.write(rows.note_seen, "west", "2", world.clock())
    await world.look()
    await world.look(after=1)  # once more changes nothing
    assert [await world.show(each) for each in mills] == [("degraded", [NODE_LOST])] * 3
    assert await world.show(going) == (DELETING, [NODE_LOST])
    assert await world.show(other) == ("active", [])
    running_now = await world.database.read(rows.list_running, world.clock())
    assert "east" not in {each.name for each in running_now}
    found = await world.database.read(ROWS.find, ACME, mills[0].id)
    assert found is not None
    assert found.faults[0].occurrences == 1

    assert await world.database.write(rows.note_seen, "east", "1", world.clock())
    await world.look()
    assert await world.show(mills[0]) == ("degraded", [])
    assert await world.show(going) == (DELETING, [])
    await world.work("west")
    assert await world.show(mills[0]) == ("degraded", [])  # nobody else does its work
    await world.work("east")
    assert [await world.show(each) for each in mills] == [("active", [])] * 3


@on_both_databases
async def test_a_name_is_one_machines_until_that_one_is_lost(world: World) -> None:
    await world.claim("east", "1")
    await world.claim("east", "1")  # its next process
    with pytest.raises(Conflict, match="another machine runs as 'east'"):
        await world.claim("east", "2")
    world.clock.pass_seconds(rows.LOST_SECONDS + 1)
    await world.claim("east", "2")
    assert not await world.database.write(rows.note_seen, "east", "1", world.clock())


@on_both_databases
async def test_a_machine_is_chosen_that_is_there_and_can_run_it(world: World) -> None:

    async def chosen(what: str) -> set[str | None]:
        return {await world.database.read(rows.choose, what, world.clock()) for _ in range(20)}

    assert await chosen("instances") == {None}
    await world.claim("east", "1", "networks")
    await world.claim("west", "2", "networks", "instances")
    assert await chosen("instances") == {"west"}
    assert await chosen("networks") == {"east", "west"}
    await world.database.write(rows.note_stopped, "west", "2", world.clock())
    assert await chosen("instances") == {None}
    assert await chosen("networks") == {"east"}
    world.clock.pass_seconds(rows.LOST_SECONDS + 1)
    await world.claim("east", "1", "networks")
    assert await chosen("instances") == {None}
    assert await chosen("networks") == {"east"}


async def test_one_process_of_a_machine_watches_and_another_goes_on_after_it(world: World) -> None:
    node = Node("east", world.folder / "nodes" / "east")
    identity = identity_of(node.folder)
    assert identity_of(node.folder) == identity
    await world.claim("east", identity)
    turns: list[str] = []
    taken = asyncio.Event()

    def watcher(name: str) -> NodeWatcher:
        async def turn() -> None:
            turns.append(name)
            taken.set()

        return world.watcher(node, Watch("mills", 3600, turn))

    world.clock.pass_seconds(5)
    async with running(watcher("first")):
        await taken.wait()
        taken.clear()
        async with running(watcher("second")):
            await asyncio.sleep(0)
            assert turns == ["first"]
        async with running(watcher("third")):
            assert turns == ["first"]
    async with running(watcher("fourth")):
        await taken.wait()
    assert turns == ["first", "fourth"]
    (east,) = (each for each in await world.database.read(rows.list_nodes) if each.name == "east")
    assert world.clock() + 60 * MICROSECONDS - east.seen_at <= rows.LOST_SECONDS * MICROSECONDS


async def test_a_machine_whose_name_another_has_taken_looks_after_nothing(world: World) -> None:
    node = Node("east", world.folder / "nodes" / "east")
    await world.claim("east", "another")
    seen: list[str] = []

    async def turn() -> None:
        seen.append("a turn")

    watch = Watch("mills", 3600, turn)
    await world.watcher(node, watch, lost=lambda _: seen.append("lost")).run()  # it ends
    assert seen == ["lost"]
    assert await world.database.write(rows.note_seen, "east", "another", world.clock())


async def test_a_turn_that_fails_is_logged_and_taken_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node("east", world.folder / "nodes" / "east")
    again = asyncio.Event()
    turns: list[str] = []

    async def fail() -> None:
        turns.append("fail")
        if len(turns) > 1:
            again.set()
        raise ValueError("no wind")

    async with running(world.watcher(node, Watch("mills", 0, fail))):
        await again.wait()
    assert "mills failed, and is looked at again" in caplog.text

"""Instance pools: what is kept running, what becomes of what ends, and how pools go."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from cloudcore.compute import instances, rows
from cloudcore.compute.reconciler import InstanceReconciler
from cloudcore.errors import Conflict, QuotaExceeded
from cloudcore.nodes.node import Node
from cloudcore.quotas.limits import put_limit
from tests.compute_world import Machine, World, open_world
from tests.databases import on_both_databases
from tests.integration.oauth_world import World as Identity
from tests.worked_world import Died


@pytest.fixture
async def world(oauth: Identity, tmp_path: Path) -> World:
    return await open_world(oauth, tmp_path)


@on_both_databases
async def test_as_many_instances_run_as_the_size_says(world: World) -> None:
    pool = await world.create(size=3)
    assert pool.status == "provisioning"
    await world.look()
    assert await world.status(pool) == "provisioning"
    await world.settle(8)
    assert await world.status(pool) == "active"
    assert len(await world.ready(pool)) == 3
    assert len(world.machine.has) == 3
    assert world.changed, "load balancers are told"
    await world.settle(20)
    assert len(world.machine.started) == 3, "nothing is started twice"
    assert world.death.times["before start"] == 3


async def test_size_changes_without_restarts_of_those_that_stay(world: World) -> None:
    pool = await world.running(size=2)
    before = set(await world.ready(pool))
    assert (await world.change(pool, size=4)).status == "scaling"
    await world.settle(8)
    grown = set(await world.ready(pool))
    assert (len(grown), before < grown) == (4, True)
    await world.change(pool, size=1)
    await world.settle(8)
    (left,) = await world.ready(pool)
    assert left in before, "the oldest stays"
    assert len(world.machine.started) == 4
    assert world.machine.has.keys() == {left}
    await world.change(pool, size=0)
    await world.settle(8)
    assert (await world.status(pool), world.machine.has) == ("active", {})


async def test_what_was_decided_before_a_change_is_not_done_after_it(world: World) -> None:
    pool = await world.running()
    before = await world.find(pool)
    assert before is not None
    now = world.identity.now
    await world.change(pool, size=0)
    assert await world.database.write(instances.add, before, world.needs, now) is None
    await world.change(pool, size=1)
    await world.delete(pool)
    assert await world.database.write(instances.add, before, world.needs, now) is None


async def test_an_instance_that_ends_is_started_again_in_its_place(world: World) -> None:
    pool = await world.running(size=2)
    first, second = await world.ready(pool)
    world.machine.crash(first, 3)
    await world.look()
    assert await world.ready(pool) == [second]
    assert await world.status(pool) == "degraded"
    await world.settle(9)
    assert (await world.ready(pool), await world.status(pool)) == ([first, second], "active")
    instance = (await world.instances(pool))[0]
    assert (instance.restarts, instance.exit_code) == (1, 3)


async def test_a_right_to_pull_that_is_withdrawn_is_noticed_when_an_instance_starts(
    world: World,
) -> None:
    """Within a minute; what runs goes on, and an image that was deleted is started again."""
    pool = await world.running(size=2)
    first, second = await world.ready(pool)
    world.images.digests.clear()
    world.machine.crash(first)
    await world.settle(9)
    assert await world.ready(pool) == [first, second]
    fetched = len(world.images.fetched)
    world.images.refused.add("web:1")
    await world.look(60)
    assert await world.ready(pool) == [first, second]
    started = len(world.machine.started)
    world.machine.crash(first)
    await world.settle(20)
    assert await world.ready(pool) == [second]
    assert (len(world.machine.started), len(world.images.fetched)) == (started, fetched)
    found = await world.get(pool)
    faults = {each.code: each.message for each in found.faults}
    assert "nobody may pull web:1" in faults["INSTANCE_FAILED"]
    world.images.refused.clear()
    await world.settle(80)
    assert set(await world.ready(pool)) == {first, second}
    assert "INSTANCE_FAILED" not in await world.codes(pool)


async def test_an_image_that_another_pool_has_is_asked_for_all_the_same(world: World) -> None:
    for name, fetched in (("one", 2), ("two", 4)):  # for the pool, and for its instance
        await world.create(name)
        await world.settle(3)
        assert len(world.images.fetched) == fetched


async def test_a_restart_adopts_what_runs_and_starts_what_has_ended_once(world: World) -> None:
    """PO2: it adopts live instances, and never doubles them; what no row has is removed."""
    pool = await world.running(size=3)
    before = await world.ready(pool)
    world.machine.has["0189a000-0000-7000-8000-0000000000ff"] = world.machine.has[before[0]]
    for _ in range(3):
        world.restart()
        await world.settle(3)
    assert await world.ready(pool) == before
    assert world.machine.has.keys() == {*before}
    assert len(world.machine.started) == 3
    for each in before:
        world.machine.crash(each, None)  # as by a reboot
    world.restart()
    await world.settle(10)
    assert await world.status(pool) == "active"
    assert len(world.machine.started) == 6


async def test_another_machine_leaves_a_pool_alone(world: World, tmp_path: Path) -> None:
    pool = await world.create()
    await world.settle(3)
    (tmp_path / "there").mkdir()
    there = Machine(tmp_path / "there", world.death, world.machine.clock)
    driver = cast("Any", there)
    needs = replace(world.needs, node=Node("there", tmp_path / "there"), driver=driver)
    async with asyncio.TaskGroup() as group:
        await InstanceReconciler(needs, driver).look(group)
    assert (there.has, there.started) == ({}, [])
    await world.settle(8)
    assert await world.status(pool) == "active"


async def test_deletion_ends_every_instance_and_nothing_comes_back(world: World) -> None:
    """PO1: it stops every instance, and nothing is respawned."""
    pool = await world.running(size=3, subnet=await world.add_subnet())
    assert await world.interfaces() == len(world.machine.links) == 3
    await world.delete(pool)
    assert await world.status(pool) == "deleting"
    with pytest.raises(Conflict):
        await world.change(pool, size=5)
    for each in [*world.machine.has]:
        world.machine.crash(each)
    await world.settle(6)
    assert await world.find(pool) is None
    assert (world.machine.has, world.machine.links, await world.interfaces()) == ({}, {}, 0)
    assert len(world.machine.started) == 3
    name = await world.database.read(rows.name_of_deleted, world.account.id, "local", pool.id)
    assert name == "web"
    again = await world.create()
    assert again.id != pool.id, "the name is free again"


async def test_deletion_reaches_instances_that_are_being_made(world: World) -> None:
    """PO1: incl. ones being created at that moment."""
    pool = await world.create(size=2)
    reached, goes_on = asyncio.Event(), asyncio.Event()
    start = world.machine.start

    async def slow_start(spec: object) -> object:
        reached.set()
        await goes_on.wait()
        return await start(spec)  # type: ignore[arg-type]

    world.machine.start = slow_start  # type: ignore[method-assign, assignment]
    await world.database.read(rows.POOLS_ON.all, "here")
    making = asyncio.create_task(world.settle(3))
    await reached.wait()
    await world.delete(pool)
    goes_on.set()
    await making
    await world.settle(8)
    assert await world.find(pool) is None
    assert world.machine.has == {}


async def test_what_cannot_be_ended_is_a_fault_and_tried_again(world: World) -> None:
    pool = await world.running()
    world.machine.is_stuck = True
    await world.delete(pool)
    await world.settle(8)
    found = await world.get(pool)
    assert (found.status, [each.code for each in found.faults]) == ("deleting", ["INSTANCE_FAILED"])
    assert "a process does not end" in found.faults[0].message
    world.machine.is_stuck = False
    await world.settle(8)
    assert (await world.find(pool), world.machine.has) == (None, {})


async def test_an_image_that_is_refused_is_a_fault_until_it_is_there(world: World) -> None:
    pool = await world.create(image="web:9")
    await world.settle(3)
    assert await world.state(pool) == ("degraded", {"IMAGE_REFUSED"})
    assert world.machine.has == {}
    world.images.digests["web:9"] = f"sha256:{9:064}"
    await world.settle(20)
    assert await world.state(pool) == ("active", set())


async def test_a_full_subnet_is_a_fault_until_it_has_room(world: World) -> None:
    pool = await world.running(size=12, subnet=await world.add_subnet("10.0.0.0/28"))
    assert len(await world.ready(pool)) == 11
    assert await world.state(pool) == ("degraded", {"NO_ADDRESS"})
    await world.change(pool, size=11)
    await world.settle(2)
    assert await world.state(pool) == ("active", set())


@on_both_databases
async def test_instances_and_memory_are_limited_over_all_pools(world: World) -> None:
    now, account = world.identity.now, world.account.id
    await world.database.write(put_limit, account, "instances", 5, now)
    pool = await world.create(size=3)
    with pytest.raises(QuotaExceeded) as refused:
        await world.create("other", size=3)
    assert refused.value.params == {"quota": "instances", "limit": 5, "used": 3}
    with pytest.raises(QuotaExceeded):
        await world.change(pool, size=6)
    await world.change(pool, size=5)
    await world.database.write(put_limit, account, "instance_memory_mb", 2000, now)
    with pytest.raises(QuotaExceeded) as refused:
        await world.change(pool, memory_mb=512)
    assert refused.value.params["quota"] == "instance_memory_mb"
    await world.change(pool, size=1, memory_mb=2000)


async def test_use_is_sampled_from_the_instances_that_there_are(world: World) -> None:
    pool = await world.running(size=2, memory_mb=512, cpu_millis=100)
    assert await rows.memory_by_account(world.database) == {world.account.id: 1024}
    assert await rows.cpu_by_account(world.database) == {world.account.id: 200}
    await world.delete(pool)
    await world.settle(6)
    assert await rows.memory_by_account(world.database) == {}


@pytest.mark.parametrize(
    ("database_url", "time"),
    [
        *(("sqlite", time) for time in (1, 2, 3, 4)),
        pytest.param("postgresql", 1, marks=pytest.mark.postgresql),
    ],
    indirect=["database_url"],
)
async def test_a_death_at_any_step_leaves_nothing_and_starts_nothing_twice(
    database_url: str, world: World, time: int
) -> None:
    """Die at each place that a process comes to, when it comes there this time; then go on."""
    world.death.time = time
    pool = await world.create(size=2, subnet=await world.add_subnet())
    await _outlive(world, looks=10)
    for change in ({"image": "web:2"}, {"size": 1}):
        await world.change(pool, **change)
        await _outlive(world, looks=50)
    found = await world.get(pool)
    assert (found.status, found.faults) == ("active", ())
    (instance,) = await world.instances(pool)
    assert (instance.status, instance.version) == ("running", found.version)
    assert world.machine.has.keys() == {instance.id}
    assert world.machine.links.keys() == {instance.interface_id}
    assert await world.interfaces() == 1
    await world.delete(pool)
    await _outlive(world, looks=30)
    assert await world.find(pool) is None
    assert (world.machine.has, world.machine.links, await world.interfaces()) == ({}, {}, 0)
    assert len(set(world.machine.started)) == len(world.machine.started) == 4
    outside = {f"{when} {what}" for when in ("before", "after") for what in _STEPS}
    assert outside <= set(world.death.died)


_STEPS = (
    *("start", "attach", "go", "stop", "detach", "remove"),
    *("add", "store_running", "mark_leaving", "delete_instance"),
)


async def _outlive(world: World, looks: int) -> None:
    """Look again and again; after the death of the process, the next one goes on."""
    for _ in range(looks):
        try:
            await world.look()
        except* Died:
            world.restart()

"""Instance pools: how a new version takes over, and when an instance is ready, or a fault."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest

from cloudcore.clock import MICROSECONDS
from cloudcore.compute.instance_pool import Instance
from cloudcore.errors import Unavailable
from tests.compute_world import World, open_world
from tests.integration.oauth_world import World as Identity


@pytest.fixture
async def world(oauth: Identity, tmp_path: Path) -> World:
    return await open_world(oauth, tmp_path)


async def test_a_new_version_takes_over_one_by_one(world: World) -> None:
    pool = await world.running(size=3)
    old = set(await world.ready(pool))
    await world.change(pool, image="web:2")
    assert await world.status(pool) == "scaling"
    most = fewest = 3
    for _ in range(60):
        await world.look()
        most = max(most, len(world.machine.has))
        fewest = min(fewest, len(await world.ready(pool)))
    found = await world.get(pool)
    assert (found.status, found.faults) == ("active", ())
    assert all(each.version == found.version for each in await world.instances(pool))
    assert not old & set(await world.ready(pool))
    assert (most, fewest) == (4, 3), "one more at a time, and none before that is ready"
    assert len(world.machine.started) == 6


async def test_each_change_of_what_runs_is_a_version_and_one_of_words_is_none(world: World) -> None:
    pool = await world.running()
    changed = await world.change(pool, description="Of shops.", tags={"a": "b"})
    assert changed.status == "active"
    await world.settle(10)
    assert len(world.machine.started) == 1
    changes: tuple[Mapping[str, object], ...] = (
        *({"command": ["serve"]}, {"environment": {"A": "b"}}),
        *({"memory_mb": 512}, {"cpu_millis": 500}),
    )
    for number, change in enumerate(changes, 2):
        assert (await world.change(pool, **change)).status == "scaling", change
        await world.settle(20)
        assert (await world.status(pool), len(world.machine.started)) == ("active", number)


async def test_a_new_version_that_crashes_stops_the_roll_and_the_old_ones_go_on(
    world: World,
) -> None:
    pool = await world.running(size=2)
    old = set(await world.ready(pool))
    world.machine.crashes.add(world.images.digests["web:2"])
    await world.change(pool, image="web:2")
    await world.settle(30)
    assert await world.status(pool) == "degraded"
    assert "ROLL_STOPPED" in await world.codes(pool)
    assert set(await world.ready(pool)) == old
    assert len(world.machine.has) == 3
    # What was before is wanted again: nothing of it was touched, and nothing is started anew.
    count = len(world.machine.started)
    await world.change(pool, image="web:1")
    await world.settle(20)
    assert set(await world.ready(pool)) == old == set(world.machine.has)
    assert await world.state(pool) == ("active", set())
    assert len(world.machine.started) == count


async def test_a_version_that_ended_before_takes_over_only_after_a_minute(world: World) -> None:
    pool = await world.running(size=2)
    old = set(await world.ready(pool))
    world.machine.crashes.add(world.images.digests["web:2"])
    await world.change(pool, image="web:2")
    await world.settle(4)
    world.machine.crashes.clear()
    count = len(world.machine.started)
    while len(world.machine.started) == count:
        await world.look()
    await world.settle(58)
    assert old < set(await world.ready(pool))
    await world.settle(30)
    assert not old & set(await world.ready(pool))
    assert await world.state(pool) == ("active", set())


async def test_a_crashing_version_is_replaced_by_the_next_one(world: World) -> None:
    pool = await world.running(size=2)
    world.machine.crashes.add(world.images.digests["web:2"])
    await world.change(pool, image="web:2")
    await world.settle(10)
    await world.change(pool, image="web:3")
    await world.settle(60)
    assert await world.state(pool) == ("active", set())
    digests = {each.image_digest for each in await world.instances(pool)}
    assert digests == {world.images.digests["web:3"]}


async def test_a_refused_image_takes_nothing_away(world: World) -> None:
    pool = await world.running(size=2)
    before = await world.ready(pool)
    await world.change(pool, image="web:9")
    await world.settle(8)
    assert await world.state(pool) == ("degraded", {"IMAGE_REFUSED"})
    assert await world.ready(pool) == before
    world.machine.crash(before[0])
    await world.settle(10)
    assert await world.ready(pool) == before, "those that are there are kept running"


@asynccontextmanager
async def port_of(world: World, instance: Instance, *, is_kept: bool) -> AsyncIterator[None]:
    """Listen at the socket of an instance's port; end connections at once unless they are kept."""
    ports = world.machine.folder(instance.id) / "ports"
    ports.mkdir(exist_ok=True)
    (ports / "8080").unlink(missing_ok=True)

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):  # who looked may have hung up
            if is_kept:
                await reader.read()
            writer.close()
            await writer.wait_closed()

    folder = os.open(ports, os.O_PATH)
    server = await asyncio.start_unix_server(take, f"/proc/self/fd/{folder}/8080")
    os.close(folder)
    try:
        yield
    finally:
        server.close()


async def test_with_a_port_an_instance_is_ready_when_that_takes_a_connection(
    world: World,
) -> None:
    pool = await world.create(ports=[8080])
    await world.settle(3)
    (instance,) = await world.instances(pool)
    async with port_of(world, instance, is_kept=False):  # as a shim does if nobody listens
        await world.settle(50)
        assert [each.status for each in await world.instances(pool)] == ["starting"]
        await world.settle(10)
        assert [each.status for each in await world.instances(pool)] == ["unhealthy"]
    async with port_of(world, instance, is_kept=True):
        await world.look()
        assert await world.ready(pool) == [instance.id]
        assert await world.status(pool) == "active"
    await world.settle(10)
    assert await world.ready(pool) == [instance.id], "a short silence changes nothing"
    await world.settle(15)
    assert [each.status for each in await world.instances(pool)] == ["unhealthy"]
    assert await world.status(pool) == "degraded"
    assert len(world.machine.started) == 1


async def test_what_goes_is_taken_from_load_balancers_first(world: World) -> None:
    pool = await world.create(ports=[8080])
    await world.settle(3)
    (old,) = await world.instances(pool)
    async with port_of(world, old, is_kept=True):
        await world.look()
        await world.change(pool, image="web:2")
        await world.settle(70)
        new = (await world.instances(pool))[-1]
        assert new.id != old.id
        assert (await world.ready(pool), await world.codes(pool)) == ([old.id], {"ROLL_STOPPED"})
        async with port_of(world, new, is_kept=True):
            world.changed.clear()
            await world.look()
            assert (await world.ready(pool), world.changed != []) == ([new.id], True)
            assert old.id in world.machine.has, "it finishes what it has"
            await world.settle(4)
            assert old.id in world.machine.has
            await world.settle(2)
            assert world.machine.has.keys() == {new.id}
            assert await world.state(pool) == ("active", set())


async def test_pauses_between_restarts_double_from_one_second_to_sixty(world: World) -> None:
    pool = await world.create()
    world.machine.crashes.add(world.images.digests["web:1"])
    moments: list[int] = []
    count = 0
    for _ in range(600):
        await world.look()
        if len(world.machine.started) > count:
            count = len(world.machine.started)
            moments.append(world.identity.now // MICROSECONDS)
    pauses = [after - before for before, after in pairwise(moments)]
    # One look notices the end, and one begins anew.
    assert [each - 1 for each in pauses[:9]] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    (instance,) = await world.instances(pool)
    assert (instance.exit_code, instance.restarts) == (1, count - 1)


async def test_five_ends_in_ten_minutes_are_a_fault_until_it_runs_on(world: World) -> None:
    pool = await world.create()
    digest = world.images.digests["web:1"]
    world.machine.crashes.add(digest)
    await world.settle(2)
    while len((await world.instances(pool))[0].exits) < 4:
        await world.look()
    assert await world.codes(pool) == set()
    while len((await world.instances(pool))[0].exits) < 5:
        await world.look()
    await world.look()
    (instance,) = await world.instances(pool)
    found = await world.get(pool)
    (fault,) = found.faults
    assert (fault.code, fault.subject) == ("INSTANCE_CRASHING", instance.id)
    assert "ended with 1" in fault.message
    assert found.status == "degraded"
    world.machine.crashes.clear()
    await world.settle(100)
    assert await world.codes(pool) == {"INSTANCE_CRASHING"}, "ten minutes are not over"
    await world.settle(10, after=60)
    assert await world.state(pool) == ("active", set())


async def test_an_instance_that_cannot_be_made_says_why(world: World) -> None:
    pool = await world.create()
    world.machine.fails[world.images.digests["web:1"]] = "no such program: run"
    await world.settle(3)
    found = await world.get(pool)
    assert {each.code: each.message for each in found.faults} == {
        "INSTANCE_FAILED": "no such program: run"
    }
    world.machine.fails.clear()
    await world.settle(20)
    assert await world.state(pool) == ("active", set())


async def test_what_fails_again_and_again_is_a_fault_and_the_log_alone_has_its_words(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    pool = await world.create()
    world.machine.error = ValueError("of /var/lib/inner")
    await world.settle(3)
    assert await world.codes(pool) == set(), "once may be chance"
    await world.settle(20)
    found = await world.get(pool)
    (fault,) = found.faults
    assert (found.status, fault.code) == ("degraded", "INSTANCE_FAILED")
    assert "inner" not in fault.message
    assert "ValueError: of /var/lib/inner" in caplog.text
    world.machine.error = Unavailable("the network of the VPC is not there yet")
    await world.settle(20)
    found = await world.get(pool)
    assert "the network of the VPC is not there yet" in found.faults[0].message
    world.machine.error = None
    await world.settle(20)
    assert await world.state(pool) == ("active", set())
    world.machine.error = OSError("device busy")
    await world.delete(pool)
    await world.settle(30)
    assert await world.state(pool) == ("deleting", {"INSTANCE_FAILED"})
    world.machine.error = None
    await world.settle(8)
    assert (await world.find(pool), world.machine.has) == (None, {})

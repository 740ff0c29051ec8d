"""L2: a process that dies in or between any two steps of a load balancer's work loses nothing.

A step is done outside, and then the process dies before it can store that; or it dies after it has
stored it. Another process goes on from what is stored.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final, cast

import pytest

from cloudcore.db.base import Database
from cloudcore.jobs.kinds import Done
from cloudcore.jobs.queue import LeaseTerms, lease
from cloudcore.jobs.worker import _commit
from cloudcore.loadbalancer import rows
from cloudcore.loadbalancer.workflow import WORK
from tests.balancers import (
    HTTPS,
    NODE,
    OF_POOL,
    BalancerWorld,
    Instance,
    assert_nothing_left,
    open_balancers,
)

CREATION: Final = ("role", "attach", "replicas")
TEARDOWN: Final = ("detach", "stop", "remove_role", "release_vip")


@pytest.fixture
async def world(database: Database) -> AsyncIterator[BalancerWorld]:
    """Return an account with a network and a pool."""
    async with open_balancers(database) as world:
        world.pools.instances = [Instance("i-1", "10.0.1.21")]
        yield world


async def take_step(world: BalancerWorld, *, is_stored: bool = True) -> str | None:
    """Take the next step as one process; return its name, or None if there is nothing to do.

    If it is not stored, the process died when it had done all outside.
    """
    kind, now = WORK.job_kind(world.needs, NODE), world.clock()
    jobs = await world.database.write(lease, LeaseTerms("t", now, 1, {kind.name}), now)
    if not jobs:
        return None
    outcome = await kind.step(jobs[0])
    if is_stored:
        await world.database.write(partial(_commit, jobs[0], outcome, now, now), keep=False)
    if isinstance(outcome, Done):
        return None
    cursor = cast("Any", jobs[0].cursor)
    return str(cursor[1]) if cursor else "the first"


async def die_after(world: BalancerWorld, steps: int, *, is_stored: bool) -> None:
    """Take some steps, then die in the next one, or after it."""
    for _ in range(steps):
        assert await take_step(world) is not None
    assert await take_step(world, is_stored=is_stored) is not None


@pytest.mark.parametrize("is_stored", [True, False], ids=["between", "within"])
@pytest.mark.parametrize("place", range(3), ids=CREATION)
async def test_creation(world: BalancerWorld, place: int, is_stored: bool) -> None:
    made = await world.make(listeners=[HTTPS], backends=[OF_POOL])
    await die_after(world, place, is_stored=is_stored)
    assert await world.worked(made) == ("active", [])
    assert sorted(world.proxies.running) == [(made["id"], 1), (made["id"], 2)]
    assert world.network.vips == {made["vip"]: made["vpc"]["id"]}
    assert len(world.roles.roles) == 1


@pytest.mark.parametrize("is_stored", [True, False], ids=["between", "within"])
@pytest.mark.parametrize("place", range(3), ids=CREATION)
async def test_update(world: BalancerWorld, place: int, is_stored: bool) -> None:
    made = await world.active(listeners=[HTTPS], backends=[OF_POOL])
    other = {**HTTPS, "certificate": "other"}
    await world.change(made, listeners=[other], replica_count=1)
    await die_after(world, place, is_stored=is_stored)
    assert await world.worked(made) == ("active", [])
    ((place_of, running),) = world.proxies.running.items()
    assert place_of == (made["id"], 1)
    assert list(running.certificates.values()) == [b"certificate of other\nkey of other\n"]
    ((_, policy),) = world.roles.roles.items()
    assert "certificate/other" in str(policy)


@pytest.mark.parametrize("is_stored", [True, False], ids=["between", "within"])
@pytest.mark.parametrize("place", range(4), ids=TEARDOWN)
async def test_teardown(world: BalancerWorld, place: int, is_stored: bool) -> None:
    made = await world.active(listeners=[HTTPS], backends=[OF_POOL])
    await world.ask("DELETE", f"/{made['id']}")
    await die_after(world, place, is_stored=is_stored)
    is_last = place == len(TEARDOWN) - 1 and is_stored
    if not is_last:
        assert (await world.show(made))["status"] == "deleting"
        assert (await world.ask("PATCH", f"/{made['id']}", {})).status_code == 409
    await world.work()
    assert (await world.ask("GET", f"/{made['id']}")).status_code == 404
    await assert_nothing_left(world)


async def test_the_order_of_the_teardown_is_the_specifications(world: BalancerWorld) -> None:
    """L2: network objects, replica pool, replica IAM role, VIP reservation, the record last."""
    made = await world.active(listeners=[HTTPS], backends=[OF_POOL])
    await world.ask("DELETE", f"/{made['id']}")

    async def left() -> list[str]:
        found = await world.stored(made)
        has = {
            "network": bool(world.network.vips),
            "interface": found is not None and found.interface_id is not None,
            "replicas": bool(world.proxies.running),
            "role": bool(world.roles.roles),
            "vip": made["vip"] in await world.database.read(rows.taken_vips),
            "record": found is not None,
        }
        return [name for name, is_there in has.items() if is_there]

    seen = [await left()]
    while await take_step(world) is not None:
        seen.append(await left())
    assert seen[:4] == [
        ["network", "interface", "replicas", "role", "vip", "record"],
        ["replicas", "role", "vip", "record"],
        ["role", "vip", "record"],
        ["vip", "record"],
    ]
    assert (await world.ask("GET", f"/{made['id']}")).status_code == 404


async def test_one_that_is_just_made_is_torn_down(world: BalancerWorld) -> None:
    for place in range(len(CREATION)):
        made = await world.make(listeners=[HTTPS], backends=[OF_POOL])
        await die_after(world, place, is_stored=False)
        await world.ask("DELETE", f"/{made['id']}")
        await world.work()
        assert (await world.ask("GET", f"/{made['id']}")).status_code == 404, CREATION[place]
    await assert_nothing_left(world)


async def test_a_change_while_another_is_made_wins(world: BalancerWorld) -> None:
    made = await world.active(backends=[OF_POOL])
    await world.change(made, replica_count=4)
    await die_after(world, 1, is_stored=True)
    await world.change(made, replica_count=1)
    await world.work()
    found = await world.show(made)
    assert (found["status"], found["replica_count"]) == ("active", 1)
    assert sorted(world.proxies.running) == [(made["id"], 1)]

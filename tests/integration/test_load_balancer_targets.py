"""Load balancers: which targets their proxies have, and how these are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from cloudcore.db.base import Database
from cloudcore.db.statement import Statement
from cloudcore.loadbalancer.workflow import pool_changed
from cloudcore.network import rows as network
from tests.balancers import (
    DB,
    HTTP,
    OF_POOL,
    POOL,
    TCP,
    WEB,
    BalancerWorld,
    Instance,
    open_balancers,
)
from tests.control_plane import ACCOUNT
from tests.databases import on_both_databases


@pytest.fixture
async def world(database: Database) -> AsyncIterator[BalancerWorld]:
    """Return an account with a network, before its first load balancer."""
    async with open_balancers(database) as world:
        yield world


@on_both_databases
async def test_it_follows_the_instances_of_a_pool(world: BalancerWorld) -> None:
    folder = Path("/var/lib/instances/x/ports")
    one, two = Instance("i-1", "10.0.1.21"), Instance("i-2", None, folder)
    world.pools.instances = [one]
    made = await world.active()
    made = await world.change(made, backends=[OF_POOL])
    assert made["backends"][0]["targets"][0]["pool"]["name"] == "workers"
    await world.work()
    assert await places(world, made) == ["10.0.1.21"]
    world.pools.instances = [one, two, Instance("i-3", "10.0.1.23", is_ready=False)]
    await world.database.write(pool_changed, ACCOUNT, POOL, world.clock())
    assert (await world.worked(made))[0] == "active"
    assert await places(world, made) == ["10.0.1.21", str(folder / "8080")]
    # One that goes gets no new connections, and one that never was ready gets none at all.
    for drains in ([True, False], [False, True]):
        both = zip((one, two), drains, strict=True)
        world.pools.instances = [each._replace(is_ready=not is_last) for each, is_last in both]
        await world.database.write(pool_changed, ACCOUNT, POOL, world.clock())
        await world.work()
        plan = world.proxies.running[made["id"], 1].plan
        assert [each.is_draining for each in plan.backends[0].targets] == drains
    world.pools.instances = [two]
    await world.database.write(pool_changed, ACCOUNT, POOL, world.clock())
    await world.work()
    assert await places(world, made) == [str(folder / "8080")]
    health = (await world.show(made))["backends"][0]["health"]
    assert health == [{"port": 8080, "state": "unknown", "instance_id": "i-2"}]


async def places(world: BalancerWorld, made: dict[str, Any]) -> list[str | None]:
    plan = world.proxies.running[made["id"], 2].plan
    return [each.socket or each.address for each in plan.backends[0].targets]


async def test_a_deleted_pool_gives_no_targets_and_a_fault(world: BalancerWorld) -> None:
    world.pools.instances = [Instance("i-1", "10.0.1.21")]
    made = await world.active(backends=[OF_POOL])
    world.pools.is_deleted = True
    await world.database.write(pool_changed, ACCOUNT, POOL, world.clock())
    await world.work()
    found = await world.show(made)
    assert (found["status"], await places(world, made)) == ("degraded", [])
    assert [each["code"] for each in found["faults"]] == ["POOL_DELETED"]
    await world.change(made, backends=[WEB])
    assert await world.worked(made) == ("active", [])


async def test_an_instance_of_another_network_is_left_out(world: BalancerWorld) -> None:
    world.pools.instances = [Instance("i-1", "10.9.0.1"), Instance("i-2", "10.0.1.22")]
    made = await world.make(backends=[OF_POOL])
    await world.work()
    found = await world.show(made)
    assert await places(world, made) == ["10.0.1.22"]
    assert [each["code"] for each in found["faults"]] == ["TARGET_OUTSIDE"]
    assert found["status"] == "degraded"


async def move_subnet(world: BalancerWorld, cidr: str) -> None:
    """Do what no request can; but a subnet that is made anew may have another range."""
    moved = network.SUBNETS.table.update().values(cidr_ipv4=text(f"'{cidr}'"))
    await world.database.write(lambda tx: tx.execute(Statement(moved)))


async def test_an_address_whose_subnet_goes_is_left_out_until_it_is_back(
    world: BalancerWorld,
) -> None:
    made = await world.active(backends=[WEB, DB], listeners=[HTTP, TCP])
    await world.look()
    calls = list(world.proxies.calls)
    await world.look()
    assert world.proxies.calls == calls, "nothing has changed"
    outside = ("TARGET_OUTSIDE", "error")
    for network_of_subnet, faults, status, addresses in (
        ("10.0.1.8/29", [outside], "degraded", [["10.0.1.9"], []]),
        ("10.0.2.0/24", [outside, outside], "degraded", [[], []]),
        ("10.0.1.0/24", [], "active", [["10.0.1.9"], ["10.0.1.7"]]),
    ):
        await move_subnet(world, network_of_subnet)
        await world.look()
        found = await world.show(made)
        assert [(one["code"], one["severity"]) for one in found["faults"]] == faults
        plan = world.proxies.running[made["id"], 1].plan
        assert [[each.address for each in one.targets] for one in plan.backends] == addresses
        assert found["status"] == status
        calls = list(world.proxies.calls)
        await world.look()
        assert world.proxies.calls == calls, "once"
    await move_subnet(world, "10.0.1.8/29")
    await world.change(made, replica_count=1)
    assert await world.worked(made) == ("degraded", ["TARGET_OUTSIDE"])


async def test_without_namespaces_only_what_the_operator_allows_is_dialled(
    world: BalancerWorld,
) -> None:
    world.network.namespace = None
    made = await world.make()
    await world.work()
    found = await world.show(made)
    assert [each["code"] for each in found["faults"]] == ["TARGET_OUTSIDE"]
    assert world.proxies.running[made["id"], 1].plan.backends[0].targets == ()
    assert world.proxies.running[made["id"], 1].netns is None


@dataclass
class Noting:
    """A database that counts its changes."""

    database: Database
    writes: int = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as it is
        self.writes += name.startswith("write")
        return getattr(self.database, name)


async def test_health_of_targets_is_stored_when_it_changes(world: BalancerWorld) -> None:
    made = await world.active()
    await world.look()
    seen = await world.show(made)
    (health,) = seen["backends"][0]["health"]
    assert health == {"port": 8080, "state": "healthy", "address": "10.0.1.9"}
    noting = Noting(world.database)
    object.__setattr__(world.needs, "database", noting)
    await world.watch.turn()
    assert noting.writes == 0  # nothing has changed
    world.proxies.states["10.0.1.9 8080"] = "unhealthy"
    await world.look()
    seen = await world.show(made)
    assert seen["backends"][0]["health"][0]["state"] == "unhealthy"
    assert (seen["status"], seen["updated_at"]) == ("active", made["updated_at"])

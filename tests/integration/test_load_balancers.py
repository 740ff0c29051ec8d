"""Load balancers: what requests may say, and what follows from them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from cloudcore.db.base import Database
from tests.balancers import BalancerWorld, open_balancers, wanted
from tests.databases import on_both_databases

pytestmark = on_both_databases


@pytest.fixture
async def world(database: Database) -> AsyncIterator[BalancerWorld]:
    """Return an account with a network, before its first load balancer."""
    async with open_balancers(database) as world:
        yield world


async def test_one_is_created_and_becomes_active(world: BalancerWorld) -> None:
    answer = await world.ask("POST", "", wanted())
    assert answer.status_code == 202
    made = answer.json()["load_balancer"]
    assert answer.headers["location"] == f"/v1/load-balancers/{made['id']}"
    assert (made["status"], made["vip"], made["node"]) == ("provisioning", "192.0.2.1", "machine-1")
    assert made["subnet"]["crn"].endswith(":subnet/app")
    assert made["vpc"]["crn"].endswith(":vpc/net")
    await world.work()
    found = await world.show(made)
    assert (found["status"], found["faults"]) == ("active", [])
    assert found["replicas"] == [{"number": 1, "is_alive": True}, {"number": 2, "is_alive": True}]
    assert world.network.vips == {"192.0.2.1": made["vpc"]["id"]}
    assert sorted(world.proxies.running) == [(made["id"], 1), (made["id"], 2)]

"""Interfaces: which addresses of a subnet are given out, to whom, and what that costs."""

from __future__ import annotations

import asyncio
from ipaddress import IPv6Network, ip_address

import pytest

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, InvalidInput, NotFound
from cloudcore.network.driver import InterfacePlan
from tests.control_plane import ACCOUNT, OTHER_ACCOUNT
from tests.databases import on_both_databases
from tests.integration.network_world import LOCAL, World
from tests.integration.noting_database import NotingDatabase

IPV6 = IPv6Network("fd00::/64")


@on_both_databases
async def test_all_addresses_but_five_are_given_out_once(networked: World) -> None:
    vpc = await networked.vpc(cidr_ipv6="fd00::/48")
    networks = {"cidr_ipv4": "10.1.0.16/28", "cidr_ipv6": "fd00::/64"}
    subnet = await networked.make("subnets", "a", vpc="shop", **networks)
    placing = (networked.place(subnet["id"], number=number) for number in range(11))
    placed = await asyncio.gather(*placing)
    addresses = sorted(ip_address(each.address_ipv4 or "") for each in placed)
    assert [str(each) for each in addresses] == [f"10.1.0.{last}" for last in range(20, 31)]
    assert len({each.address_ipv6 for each in placed}) == 11
    assert all(ip_address(each.address_ipv6 or "") in IPV6 for each in placed)
    assert {(each.vpc.id, each.subnet.id) for each in placed} == {(vpc["id"], subnet["id"])}
    with pytest.raises(Conflict) as refused:
        await networked.place(subnet["id"])
    assert refused.value.params == {"reason": "no_address_left", "subnet": "a"}
    shown = await networked.list(f"network-interfaces?subnet_id={subnet['id']}")
    assert {each["owner"] for each in shown} == {
        f"crn:compute:local:{ACCOUNT}:instance/{number}" for number in range(11)
    }
    assert {each["address_ipv4"] for each in shown} == {str(each) for each in addresses}
    (group,) = await networked.list(f"security-groups?vpc_id={vpc['id']}")
    named = {each: group[each] for each in ("id", "crn", "name")}
    assert all(each["security_groups"] == [named] for each in shown)
    plan = await networked.plan(vpc["id"])
    assert {each.id for each in plan.interfaces} == {each.id for each in placed}
    first = placed[0]
    assert (
        InterfacePlan(
            first.id,
            subnet["id"],
            ip_address(first.address_ipv4 or ""),  # type: ignore[arg-type]
            ip_address(first.address_ipv6 or ""),  # type: ignore[arg-type]
            (group["id"],),
        )
        in plan.interfaces
    )


@on_both_databases
async def test_of_released_addresses_the_one_free_for_longest_is_next(networked: World) -> None:
    await networked.vpc()
    subnet = await networked.make("subnets", "a", vpc="shop", cidr_ipv4="10.1.0.0/28")
    placed = [await networked.place(subnet["id"]) for _ in range(10)]
    for released in (placed[7], placed[2], placed[5]):
        networked.pass_time(1)
        await networked.release(released)
        await networked.release(released)  # again is nothing
    following = [(await networked.place(subnet["id"])).address_ipv4 for _ in range(4)]
    never_had = "10.1.0.14"
    assert following == [
        never_had,
        *(each.address_ipv4 for each in (placed[7], placed[2], placed[5])),
    ]
    with pytest.raises(Conflict):
        await networked.place(subnet["id"])


async def test_a_place_costs_the_same_in_each_subnet_however_full(networked: World) -> None:
    await networked.vpc()
    small = await networked.make("subnets", "a", vpc="shop", cidr_ipv4="10.1.0.0/28")
    large = await networked.make("subnets", "b", vpc="shop", cidr_ipv4="10.1.128.0/17")
    noting = NotingDatabase(networked.database)
    costs = []

    async def cost(subnet_id: str) -> None:
        networked.database = noting
        noting.noted.clear()
        await networked.place(subnet_id)
        costs.append([each.statement for each in noting.noted])

    await cost(small["id"])
    await cost(large["id"])
    for _ in range(60):
        await networked.place(large["id"])
    await cost(large["id"])
    assert costs[0] == costs[1] == costs[2]


async def test_a_change_of_interfaces_wakes_their_vpc(networked: World) -> None:
    vpc = await networked.vpc()
    subnet = await networked.make("subnets", "a", vpc="shop", cidr_ipv4="10.1.0.0/28")
    group = await networked.make("security-groups", "web", vpc="shop")
    interface = await networked.place(subnet["id"])
    generations = [(await networked.row(vpc["id"])).generation]
    for groups in ([group["id"]], [group["id"], group["id"]]):  # the second changes nothing
        await networked.database.write(LOCAL.set_groups, interface.id, groups, networked.now)
        generations.append((await networked.row(vpc["id"])).generation)
    await networked.release(interface)
    generations.append((await networked.row(vpc["id"])).generation)
    assert [each - generations[0] for each in generations] == [0, 1, 1, 2]
    assert (await networked.plan(vpc["id"])).interfaces == ()


async def test_an_interface_without_a_group_is_in_the_default_one(networked: World) -> None:
    vpc = await networked.vpc()
    subnet = await networked.make("subnets", "a", vpc="shop", cidr_ipv4="10.1.0.0/28")
    group = await networked.make("security-groups", "web", vpc="shop")
    (default,) = await networked.list("security-groups?name=shop-default")
    interface = await networked.place(subnet["id"], group["id"])
    await networked.database.write(LOCAL.set_groups, interface.id, [], networked.now)
    (planned,) = (await networked.plan(vpc["id"])).interfaces
    assert planned.group_ids == (default["id"],)


async def test_groups_and_subnets_of_others_are_refused(networked: World) -> None:
    await networked.vpc()
    await networked.vpc("other")
    subnet = await networked.make("subnets", "a", vpc="shop", cidr_ipv4="10.1.0.0/28")
    (other,) = await networked.list("security-groups?name=other-default")
    with pytest.raises(InvalidInput) as refused:
        await networked.place(subnet["id"], other["id"])
    assert refused.value.params["reason"] == "other_vpc"
    groups = [
        (await networked.make("security-groups", f"g{number}", vpc="shop"))["id"]
        for number in range(6)
    ]
    with pytest.raises(InvalidInput):
        await networked.place(subnet["id"], *groups)
    with pytest.raises(NotFound):
        await networked.place(subnet["id"], "01890000-0000-7000-8000-00000000ffff")
    assert await networked.list("network-interfaces") == []

    read, asked = networked.database.read, list[str]()
    for reference in ("a", subnet["id"], subnet["crn"]):
        found = await read(LOCAL.subnet, ACCOUNT, "local", reference, asked.append)
        assert (found.id, found.node) == (subnet["id"], "here")
        with pytest.raises((NotFound, InvalidInput)):
            await read(LOCAL.subnet, OTHER_ACCOUNT, "local", reference, asked.append)

    def stranger(tx: Connection) -> object:
        return LOCAL.place(tx, OTHER_ACCOUNT, "local", subnet["id"], (), "crn", networked.now)

    with pytest.raises(NotFound):
        await networked.database.write(stranger)
    assert await networked.refused("GET", f"subnets/{subnet['id']}", token="stranger") == (
        404,
        None,
    )

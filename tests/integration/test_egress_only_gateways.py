"""Egress-only gateways as their rules say, and the internet gateways they have uplinks from."""

from __future__ import annotations

import asyncio

import pytest

from cloudcore.network import rows
from cloudcore.network.driver import VpcPlan
from tests.control_plane import ACCOUNT
from tests.databases import on_both_databases
from tests.integration.network_world import World

PATH = "egress-only-gateways"


async def test_name_or_vpc_in_a_change_is_refused_even_when_equal(networked: World) -> None:
    """Description and tags alone change, and the machine of the VPC has nothing to do."""
    vpc = await networked.vpc()
    await networked.uplink()
    made = await networked.make(PATH, "out", vpc="shop")
    assert {*made} == {
        *("id", "crn", "name", "vpc", "description", "tags", "created_at", "updated_at")
    }
    assert made["vpc"] == {each: vpc[each] for each in ("id", "crn", "name")}
    assert made["crn"].endswith(":egress-only-gateway/out")
    path = f"{PATH}/{made['id']}"
    for field, same in (("name", "out"), ("vpc", "shop"), ("vpc", vpc["id"])):
        status, params = await networked.refused("PATCH", path, {field: same, "tags": {}})
        assert (status, params["field"], params["reason"]) == (400, field, "unknown_field")
    generation = (await networked.row(vpc["id"])).generation
    networked.driver.checked.clear()
    networked.driver.refuses = True  # nobody is asked
    changed = await networked.to("PATCH", path, {"description": "Ours.", "tags": {"a": "b"}})
    found = changed.json()["egress_only_gateway"]
    assert (found["description"], found["tags"]) == ("Ours.", {"a": "b"})
    assert (await networked.row(vpc["id"])).generation == generation
    assert networked.driver.checked == []
    unchanged = ("id", "crn", "name", "vpc", "created_at")
    assert {each: found[each] for each in unchanged} == {each: made[each] for each in unchanged}


async def test_a_vpc_without_an_attached_internet_gateway_is_409(networked: World) -> None:
    await networked.vpc()
    await networked.make("internet-gateways", "spare")  # attached to nothing
    body = {"name": "out", "vpc": "shop"}
    status, params = await networked.refused("POST", PATH, body)
    assert (status, params["reason"]) == (409, "no_internet_gateway")
    await networked.uplink()
    assert (await networked.to("POST", PATH, body)).status_code == 201
    second = await networked.refused("POST", PATH, {"name": "more", "vpc": "shop"})
    assert second == (409, {"reason": "has_one", "egress_only_gateway": "out"})


@on_both_databases
async def test_of_two_gateways_of_a_vpc_at_once_one_is_made(networked: World) -> None:
    await networked.vpc()
    await networked.uplink()
    bodies = [{"name": f"out-{number}", "vpc": "shop"} for number in range(4)]
    answers = await asyncio.gather(*(networked.to("POST", PATH, each) for each in bodies))
    assert sorted(each.status_code for each in answers) == [201, 409, 409, 409]


async def test_the_internet_gateway_stays_while_there_is_one(networked: World) -> None:
    await networked.vpc()
    gateway = await networked.uplink()
    made = await networked.make(PATH, "out", vpc="shop")
    detach = f"internet-gateways/{gateway['id']}/detach"
    status, params = await networked.refused("POST", detach)
    assert (status, params) == (409, {"reason": "in_use", "egress_only_gateway": "out"})
    attached = await networked.refused("DELETE", f"internet-gateways/{gateway['id']}")
    assert attached == (409, {"reason": "attached", "vpc": "shop"})
    assert (await networked.to("DELETE", f"{PATH}/{made['id']}")).status_code == 204
    assert (await networked.to("POST", detach)).json()["internet_gateway"]["vpc"] is None
    again = await networked.to("POST", detach)
    assert again.status_code == 200, "what is detached stays so"
    assert (await networked.to("DELETE", f"internet-gateways/{gateway['id']}")).is_success


@on_both_databases
async def test_a_detachment_and_a_creation_at_once_leave_no_gateway_without_uplink(
    networked: World,
) -> None:
    for number in range(4):
        name = f"vpc-{number}x"
        vpc = await networked.vpc(name)
        gateway = await networked.uplink(name)
        detached, made = await asyncio.gather(
            networked.to("POST", f"internet-gateways/{gateway['id']}/detach"),
            networked.to("POST", PATH, {"name": name, "vpc": name}),
        )
        assert sorted((detached.is_success, made.is_success)) == [False, True]
        plan = await networked.plan(vpc["id"])
        assert plan.internet_gateway is plan.egress_only_gateway is made.is_success


async def test_a_gateway_is_not_deleted_while_a_route_leads_to_it(networked: World) -> None:
    vpc = await networked.vpc(cidr_ipv6="2001:db8:100::/56")
    gateway = await networked.uplink()
    made = await networked.make(PATH, "out", vpc="shop")
    (table,) = await networked.list(f"route-tables?vpc_id={vpc['id']}")
    path = f"route-tables/{table['id']}"
    for many, record, one in (
        (PATH, made, "egress_only_gateway"),
        ("internet-gateways", gateway, "internet_gateway"),
    ):
        routes = [{"destination": "::/0", "target": record["name"]}]
        if one == "internet_gateway":
            routes = [{"destination": "::/0", "target": record["crn"]}]
        changed = await networked.to("PATCH", path, {"routes": routes})
        assert changed.json()["route_table"]["routes"][-1] == {
            "destination": "::/0",
            "target": record["crn"],
        }
        act = ("DELETE", f"{many}/{record['id']}")
        if one == "internet_gateway":
            act = ("POST", f"{many}/{record['id']}/detach")
        status, params = await networked.refused(*act)
        assert (status, params) == (409, {"reason": "is_referred_to", "route_table": "shop-main"})
        assert (await networked.to("PATCH", path, {"routes": []})).status_code == 200
        assert (await networked.to(*act)).is_success


@on_both_databases
async def test_an_internet_gateway_is_of_one_vpc_and_a_vpc_has_one(networked: World) -> None:
    for name in ("shop", "other"):
        await networked.vpc(name)
    gateway = await networked.uplink()
    path = f"internet-gateways/{gateway['id']}/attach"
    assert (await networked.to("POST", path, {"vpc": "shop"})).json()["internet_gateway"] == gateway
    elsewhere = await networked.refused("POST", path, {"vpc": "other"})
    assert elsewhere == (409, {"reason": "attached", "vpc": "shop"})
    spares = [await networked.make("internet-gateways", f"spare-{n}") for n in range(3)]
    answers = await asyncio.gather(
        *(
            networked.to("POST", f"internet-gateways/{each['id']}/attach", {"vpc": "other"})
            for each in spares
        )
    )
    assert sorted(each.status_code for each in answers) == [200, 409, 409]
    missing = await networked.refused("POST", path, {"vpc": "nowhere"})
    assert missing[0] == 404


async def test_what_the_driver_refuses_is_500_and_the_rows_are_unchanged(
    networked: World,
) -> None:
    vpc = await networked.vpc(cidr_ipv6="2001:db8:100::/56")
    gateway = await networked.uplink()
    out = await networked.make(PATH, "out", vpc="shop")
    subnet = await networked.make("subnets", "a", vpc="shop", cidr_ipv4="10.1.0.0/24")
    group = await networked.make("security-groups", "web", vpc="shop")
    (table,) = await networked.list(f"route-tables?vpc_id={vpc['id']}")
    before = await networked.plan(vpc["id"]), await networked.row(vpc["id"])
    networked.driver.refuses = True
    route = {"destination": "::/0", "target": "out"}
    rule = {"direction": "inbound", "protocol": "all", "source": "::/0"}
    for method, path, body in (
        ("POST", "vpcs", {"name": "more", "cidr_ipv4": "10.1.0.0/16"}),
        ("POST", "subnets", {"name": "b", "vpc": "shop", "cidr_ipv4": "10.1.1.0/24"}),
        ("DELETE", f"subnets/{subnet['id']}", None),
        ("PATCH", f"route-tables/{table['id']}", {"routes": [route]}),
        ("PATCH", f"security-groups/{group['id']}", {"rules": [rule]}),
        ("POST", "security-groups", {"name": "more", "vpc": "shop"}),
        ("DELETE", f"security-groups/{group['id']}", None),
        ("DELETE", f"{PATH}/{out['id']}", None),
    ):
        answer = await networked.to(method, path, body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "INTERNAL_ERROR")
        assert (await networked.plan(vpc["id"]), await networked.row(vpc["id"])) == before, path
    networked.driver.refuses = False
    assert (await networked.to("DELETE", f"{PATH}/{out['id']}")).status_code == 204
    networked.driver.refuses = True
    detached = await networked.to("POST", f"internet-gateways/{gateway['id']}/detach")
    made = await networked.to("POST", PATH, {"name": "out", "vpc": "shop"})
    assert detached.status_code == made.status_code == 500
    assert (await networked.list("internet-gateways?name=shop"))[0]["vpc"] is not None
    assert await networked.list(f"{PATH}?name=out") == []
    assert await networked.list("vpcs?name=more") == []


async def test_the_rules_are_looked_at_after_a_change_alone(networked: World) -> None:
    """A change of words starts no program, and a change of rules is checked as it will be."""
    vpc = await networked.vpc()
    assert [each.id for each in networked.driver.checked] == [vpc["id"]]
    networked.driver.checked.clear()
    for many, name in (("route-tables", "shop-main"), ("security-groups", "shop-default")):
        (found,) = await networked.list(f"{many}?name={name}")
        changed = await networked.to("PATCH", f"{many}/{found['id']}", {"description": "Ours."})
        assert changed.status_code == 200
    assert networked.driver.checked == []
    await networked.make("subnets", "a", vpc="shop", cidr_ipv4="10.1.0.0/24")
    assert networked.driver.checked == [await networked.plan(vpc["id"])]
    networked.driver.check_really()


@on_both_databases
@pytest.mark.timeout(60)
async def test_others_change_the_vpc_while_rules_are_looked_at_and_these_are_looked_at_again(
    networked: World,
) -> None:
    """What `nft -c` takes its time for holds nobody up, and no rules are stored unseen."""
    vpc = await networked.vpc()
    loop, times = asyncio.get_running_loop(), 1

    def change_it(plan: VpcPlan) -> None:
        nonlocal times
        times -= 1
        if times >= 0:
            changing = networked.database.write(rows.bump, ACCOUNT, plan.id)
            asyncio.run_coroutine_threadsafe(changing, loop).result(20)

    networked.driver.meanwhile = change_it
    networked.driver.checked.clear()
    await networked.make("subnets", "a", vpc="shop", cidr_ipv4="10.1.0.0/24")
    plan, row = await networked.plan(vpc["id"]), await networked.row(vpc["id"])
    assert networked.driver.checked == [plan, plan]
    assert (row.generation, row.checked) == (3, 3)
    times = 1000
    body = {"name": "b", "vpc": "shop", "cidr_ipv4": "10.1.1.0/24"}
    answer = await networked.to("POST", "subnets", body)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert times > 900
    assert await networked.plan(vpc["id"]) == plan
    times = 0
    assert (await networked.to("POST", "subnets", body)).status_code == 201


@on_both_databases
async def test_changes_of_a_vpc_that_come_together_are_all_made(networked: World) -> None:
    await networked.vpc()
    bodies = [
        {"name": f"s{each}", "vpc": "shop", "cidr_ipv4": f"10.1.{each}.0/24"} for each in range(12)
    ]
    answers = await asyncio.gather(*(networked.to("POST", "subnets", each) for each in bodies))
    assert {each.status_code for each in answers} == {201}

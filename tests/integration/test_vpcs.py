"""VPCs and subnets: which networks they may have, and what is made and deleted with them."""

from __future__ import annotations

import asyncio
from typing import Final

from tests.control_plane import ACCOUNT
from tests.databases import on_both_databases
from tests.integration.network_world import World


@on_both_databases
async def test_a_vpc_is_made_with_a_main_table_and_a_default_group(networked: World) -> None:
    vpc = await networked.vpc(cidr_ipv6="fd12:3456:789a::/48")
    (table,) = await networked.list(f"route-tables?vpc_id={vpc['id']}")
    assert (table["name"], table["is_main"]) == ("shop-main", True)
    assert table["routes"] == [
        {"destination": "10.1.0.0/16", "target": "local"},
        {"destination": "fd12:3456:789a::/48", "target": "local"},
    ]
    (group,) = await networked.list(f"security-groups?vpc_id={vpc['id']}")
    assert (group["name"], group["is_default"]) == ("shop-default", True)
    assert group["rules"] == [
        {"direction": "inbound", "protocol": "all", "source": group["crn"]},
        {"direction": "outbound", "protocol": "all", "destination": "0.0.0.0/0"},
        {"direction": "outbound", "protocol": "all", "destination": "::/0"},
    ]
    for kind, found, reason in (
        ("route-tables", table, "is_main"),
        ("security-groups", group, "is_default"),
    ):
        status, params = await networked.refused("DELETE", f"{kind}/{found['id']}")
        assert (status, params["reason"]) == (409, reason)
    # They go with it, and their names are free.
    assert (await networked.to("DELETE", f"vpcs/{vpc['id']}")).status_code == 204
    assert await networked.list(f"route-tables?vpc_id={vpc['id']}") == []
    assert await networked.list(f"security-groups?vpc_id={vpc['id']}") == []


async def test_what_is_made_with_a_vpc_has_a_name_that_is_free(networked: World) -> None:
    await networked.vpc("other")
    await networked.make("route-tables", "shop-main", vpc="other")
    for name in ("shop", "a" * 63):
        vpc = await networked.vpc(name)
        (table,) = await networked.list(f"route-tables?vpc_id={vpc['id']}")
        assert table["name"] == f"main-{vpc['id'][-12:]}"


WRONG: Final = {
    "cidr_ipv4": (
        "10.1.0.1/16",  # bits behind the prefix
        *("8.8.0.0/16", "169.254.0.0/16"),  # others have these
        *("10.0.0.0/8", "10.1.0.0/29", "fd00::/48", "10.1.0.0"),
        *("10.1.0.0/255.255.0.0", "10.1.0.0/016", "shop"),
    ),
    "cidr_ipv6": (
        "fc00::/48",  # RFC 4193 leaves these to nobody
        "2001:db8:ff00::/56",  # not the operator's
        *("2001:db8:100::/48", "2001:db8:100::/64", "2001:db8:100::1/56", "fe80::/56"),
        *("::ffff:0:0/96", "fd00::/65", "fd00::/064", "fd00::%eth0/64", "10.1.0.0/16"),
    ),
}


async def test_what_no_vpc_can_have_is_refused(networked: World) -> None:
    for field, text in ((field, text) for field, wrong in WRONG.items() for text in wrong):
        body = {"name": "shop", "cidr_ipv4": "10.1.0.0/16", field: text}
        status, params = await networked.refused("POST", "vpcs", body)
        assert (status, params["field"]) == (400, field), text


@on_both_databases
async def test_a_global_prefix_belongs_to_one_vpc_of_the_install(networked: World) -> None:
    """And lies in the operator's ranges; a prefix of unique local addresses is free."""
    vpc = await networked.vpc(cidr_ipv6="2001:DB8:0100:0000::/56")
    assert vpc["cidr_ipv6"] == "2001:db8:100::/56"
    again = {"name": "theirs", "cidr_ipv4": "10.1.0.0/16", "cidr_ipv6": "2001:db8:100::/56"}
    status, params = await networked.refused("POST", "vpcs", again, token="stranger")
    assert (status, params["field"]) == (409, "cidr_ipv6")
    for prefix in ("2001:db8:100:100::/56", "fd00::/48"):
        assert (await networked.vpc(f"v-{prefix[:2]}", cidr_ipv6=prefix))["cidr_ipv6"] == prefix
    local = {**again, "cidr_ipv6": "fd00::/48"}
    assert (await networked.to("POST", "vpcs", local, token="stranger")).status_code == 201
    # It is free again with the VPC.
    assert (await networked.to("DELETE", f"vpcs/{vpc['id']}")).status_code == 204


@on_both_databases
async def test_of_two_at_once_one_gets_the_prefix(networked: World) -> None:
    body = {"name": "race", "cidr_ipv4": "10.1.0.0/16", "cidr_ipv6": "2001:db8:100::/56"}
    asking = (networked.to("POST", "vpcs", body, token=each) for each in ("writer", "stranger"))
    answers = await asyncio.gather(*asking)
    assert sorted(each.status_code for each in answers) == [201, 409]


async def test_no_machine_makes_networks(networked: World) -> None:
    networked.pass_time(61)  # the one that does was not seen for so long
    body = {"name": "shop", "cidr_ipv4": "10.1.0.0/16"}
    status, params = await networked.refused("POST", "vpcs", body)
    assert (status, params["reason"]) == (409, "no_machine")


async def test_a_vpc_is_not_deleted_while_something_is_in_it(networked: World) -> None:
    vpc = await networked.vpc()
    path = f"vpcs/{vpc['id']}"
    gateway = await networked.uplink()
    egress = await networked.make("egress-only-gateways", "out", vpc="shop")
    subnet = await networked.make("subnets", "front", vpc="shop", cidr_ipv4="10.1.0.0/24")
    table = await networked.make("route-tables", "spare", vpc="shop")
    group = await networked.make("security-groups", "web", vpc="shop")
    for one, many, record in (
        ("subnet", "subnets", subnet),
        ("egress_only_gateway", "egress-only-gateways", egress),
        ("internet_gateway", "internet-gateways", gateway),
        ("route_table", "route-tables", table),
        ("security_group", "security-groups", group),
    ):
        status, params = await networked.refused("DELETE", path)
        assert (status, params) == (409, {"reason": "is_referred_to", one: record["name"]})
        if one == "internet_gateway":
            detach = f"{many}/{record['id']}/detach"
            assert (await networked.to("POST", detach)).status_code == 200
        deleted = await networked.to("DELETE", f"{many}/{record['id']}")
        assert deleted.status_code == 204, deleted.text
    assert (await networked.to("DELETE", path)).status_code == 204


@on_both_databases
async def test_subnets_lie_in_their_vpc_and_none_overlaps(networked: World) -> None:
    await networked.vpc(cidr_ipv6="2001:db8:100::/56")
    first = await networked.make(
        "subnets", "a", vpc="shop", cidr_ipv4="10.1.0.0/24", cidr_ipv6="2001:db8:100:1::/64"
    )
    assert first["route_table"]["name"] == "shop-main"
    body = {"name": "b", "vpc": "shop"}
    for field, text, status in (
        ("cidr_ipv4", "10.2.0.0/24", 400),
        ("cidr_ipv4", "10.0.0.0/15", 400),
        ("cidr_ipv4", "10.1.0.0/29", 400),
        ("cidr_ipv6", "2001:db8:200:1::/64", 400),
        ("cidr_ipv6", "2001:db8:100:2::/63", 400),
        ("cidr_ipv4", "10.1.0.0/24", 409),
        ("cidr_ipv4", "10.1.0.128/28", 409),
        ("cidr_ipv4", "10.1.0.0/16", 409),
        ("cidr_ipv6", "2001:db8:100:1::/64", 409),
    ):
        answer = await networked.refused("POST", "subnets", {**body, field: text})
        told = {"reason": "overlaps", "subnet": "a"}
        assert answer[0] == status, (text, answer)
        assert answer[1] == told if status == 409 else answer[1]["field"] == field
    assert (await networked.refused("POST", "subnets", body))[0] == 400
    assert (await networked.to("POST", "subnets", {**body, "cidr_ipv4": "10.1.1.0/24"})).is_success
    # Another VPC may have the same.
    await networked.vpc("other")
    await networked.make("subnets", "c", vpc="other", cidr_ipv4="10.1.0.0/24")
    without = {"name": "d", "vpc": "other", "cidr_ipv6": "2001:db8:100:1::/64"}
    assert (await networked.refused("POST", "subnets", without))[0] == 400


@on_both_databases
async def test_of_overlapping_subnets_at_once_one_is_made(networked: World) -> None:
    await networked.vpc()
    networks = ("10.1.0.0/24", "10.1.0.0/25", "10.1.0.128/26", "10.1.0.0/20")
    answers = await asyncio.gather(
        *(
            networked.to("POST", "subnets", {"name": f"s{n}", "vpc": "shop", "cidr_ipv4": each})
            for n, each in enumerate(networks)
        )
    )
    made = [each.json()["subnet"]["cidr_ipv4"] for each in answers if each.is_success]
    assert all(each.status_code in (201, 409) for each in answers)
    assert made in (["10.1.0.0/24"], ["10.1.0.0/25", "10.1.0.128/26"], ["10.1.0.0/20"])


@on_both_databases
async def test_a_subnet_is_not_deleted_while_something_has_an_address(networked: World) -> None:
    vpc = await networked.vpc()
    subnet = await networked.make("subnets", "a", vpc="shop", cidr_ipv4="10.1.0.0/24")
    path = f"subnets/{subnet['id']}"
    interface = await networked.place(subnet["id"])
    status, params = await networked.refused("DELETE", path)
    owner = f"crn:compute:local:{ACCOUNT}:instance/1"
    assert (status, params) == (409, {"reason": "in_use", "used_by": owner})
    await networked.release(interface)
    before = (await networked.row(vpc["id"])).generation
    assert (await networked.to("DELETE", path)).status_code == 204
    assert (await networked.row(vpc["id"])).generation > before, "its machine is to know"

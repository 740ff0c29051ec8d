"""What a VPC is said to let begin: its subnets, the places in them, and the flows between these."""

from __future__ import annotations

from typing import Any

from cloudcore.network.reachability_routes import MOST_PLACES
from tests.databases import on_both_databases
from tests.integration.network_world import World


async def told(networked: World, vpc: Any) -> Any:  # noqa: ANN401 - JSON
    answer = await networked.to("GET", f"vpcs/{vpc['id']}/reachability")
    assert answer.status_code == 200, answer.text
    return answer.json()["reachability"]


def named(place: dict[str, Any]) -> tuple[str, list[str]]:
    return place["subnet"]["name"], [each["name"] for each in place["security_groups"]]


async def test_an_empty_vpc_reaches_nothing(networked: World) -> None:
    vpc = await networked.vpc()
    assert await told(networked, vpc) == {
        "vpc": {"id": vpc["id"], "crn": vpc["crn"], "name": "shop"},
        "internet_gateway": None,
        "egress_only_gateway": None,
        "subnets": [],
        "places": [],
        "flows": [],
        "is_complete": True,
    }


@on_both_databases
async def test_places_flows_and_ways_are_told_by_name(networked: World) -> None:
    vpc = await networked.vpc(cidr_ipv6="2001:db8:100::/56")
    uplink = await networked.uplink()
    out = await networked.make("egress-only-gateways", "out", vpc="shop")
    tables, subnets = {}, {}
    for number, (name, route_table, gateway) in enumerate(
        (("front", "public", uplink), ("back", "private", out)), 1
    ):
        routes = [{"destination": "::/0", "target": gateway["crn"]}]
        tables[name] = await networked.make("route-tables", route_table, vpc="shop", routes=routes)
        networks = {
            "cidr_ipv4": f"10.1.{number}.0/24",
            "cidr_ipv6": f"2001:db8:100:{number}::/64",
        }
        subnets[name] = await networked.make(
            "subnets", name, vpc="shop", route_table=route_table, **networks
        )
    web = await networked.make(
        "security-groups",
        "web",
        vpc="shop",
        rules=[
            {"direction": "inbound", "protocol": "tcp", "port_from": 443, "source": "::/0"},
            {"direction": "inbound", "protocol": "tcp", "port_from": 80, "source": "2600::/16"},
            {"direction": "outbound", "protocol": "all", "destination": "::/0"},
            {"direction": "outbound", "protocol": "all", "destination": "0.0.0.0/0"},
        ],
    )
    of_data = await networked.make(
        "security-groups",
        "data",
        vpc="shop",
        rules=[
            {"direction": "inbound", "protocol": "tcp", "port_from": 5432, "source": web["crn"]},
            {"direction": "inbound", "protocol": "icmp", "source": web["crn"]},
            {"direction": "outbound", "protocol": "all", "destination": "::/0"},
        ],
    )
    for number in (1, 2):
        await networked.place(subnets["front"]["id"], web["id"], number=number)
    await networked.place(subnets["back"]["id"], of_data["id"], number=3)

    found = await told(networked, vpc)

    assert found["internet_gateway"]["name"] == "shop"
    assert found["egress_only_gateway"]["name"] == "out"
    ways = {each["subnet"]["name"]: each for each in found["subnets"]}
    assert (ways["front"]["gateway"], ways["front"]["is_open"]) == ("internet_gateway", True)
    assert (ways["back"]["gateway"], ways["back"]["is_open"]) == ("egress_only_gateway", False)
    assert ways["back"]["route_table"]["id"] == tables["back"]["id"]
    assert {"destination": "::/0", "target": "egress_only_gateway"} in ways["back"]["routes"]

    by_name = {each["subnet"]["name"]: each for each in found["places"]}
    first, second = by_name["front"], by_name["back"]
    assert (named(first), first["interfaces"]) == (("front", ["web"]), 2)
    assert (named(second), second["interfaces"]) == (("back", ["data"]), 1)
    everything = [{"network": "::/0", "traffic": [{"protocol": "all", "ports": None}]}]
    assert first["to_internet"] == second["to_internet"] == everything
    assert {each["network"]: each["traffic"] for each in first["from_internet"]} == {
        "2600::/16": [{"protocol": "tcp", "ports": "80"}],
        "::/0": [{"protocol": "tcp", "ports": "443"}],
    }
    assert second["from_internet"] == []
    to_data = [{"protocol": "tcp", "ports": "5432"}, {"protocol": "icmp", "ports": None}]
    to_web = [{"protocol": "tcp", "ports": "443"}]
    subnet_of = {each["place"]: each["subnet"]["name"] for each in found["places"]}
    flows = {
        (subnet_of[each["source"]], subnet_of[each["target"]]): (each["ipv4"], each["ipv6"])
        for each in found["flows"]
    }
    assert flows == {
        ("front", "front"): ([], to_web),
        ("front", "back"): (to_data, to_data),
        ("back", "front"): ([], to_web),
    }
    assert found["is_complete"]


async def test_a_vpc_with_very_many_places_shows_the_first(networked: World) -> None:
    vpc = await networked.vpc()
    subnet = await networked.make("subnets", "one", vpc="shop", cidr_ipv4="10.1.1.0/24")
    for number in range(MOST_PLACES + 1):
        group = await networked.make("security-groups", f"group-{number}", vpc="shop")
        await networked.place(subnet["id"], group["id"], number=number)
    found = await told(networked, vpc)
    assert len(found["places"]) == MOST_PLACES
    assert not found["is_complete"]

"""Route tables and security groups: what their routes and rules may be, and what becomes plan."""

from __future__ import annotations

import asyncio
from ipaddress import ip_network
from typing import Any

from cloudcore.network.driver import GroupPlan, RulePlan
from tests.control_plane import ACCOUNT, ALLOW_ALL
from tests.databases import on_both_databases
from tests.integration.network_world import LOCAL, World


async def furnished(networked: World) -> tuple[str, str]:
    """Make a VPC with both gateways; return its id and the path of its main route table."""
    vpc = await networked.vpc(cidr_ipv6="2001:db8:100::/56")
    await networked.uplink()
    await networked.make("egress-only-gateways", "out", vpc="shop")
    (table,) = await networked.list(f"route-tables?vpc_id={vpc['id']}")
    return vpc["id"], f"route-tables/{table['id']}"


async def test_routes_lead_to_gateways_of_the_vpc_and_become_its_plan(networked: World) -> None:
    vpc_id, path = await furnished(networked)
    await networked.make("subnets", "a", vpc="shop", cidr_ipv6="2001:db8:100:1::/64")
    routes = [
        {"destination": "::/0", "target": "out"},
        {"destination": "0.0.0.0/0", "target": "shop"},
        {"destination": "2001:0DB8:0200::/48", "target": "shop"},
    ]
    shown = (await networked.to("PATCH", path, {"routes": routes})).json()["route_table"]["routes"]
    crn = f"crn:network:local:{ACCOUNT}"
    assert shown == [
        {"destination": "10.1.0.0/16", "target": "local"},
        {"destination": "2001:db8:100::/56", "target": "local"},
        {"destination": "::/0", "target": f"{crn}:egress-only-gateway/out"},
        {"destination": "0.0.0.0/0", "target": f"{crn}:internet-gateway/shop"},
        {"destination": "2001:db8:200::/48", "target": f"{crn}:internet-gateway/shop"},
    ]
    plan = await networked.plan(vpc_id)
    assert (plan.internet_gateway, plan.egress_only_gateway) == (True, True)
    assert plan.subnets[0].routes == (
        (ip_network("10.1.0.0/16"), "local"),
        (ip_network("2001:db8:100::/56"), "local"),
        (ip_network("::/0"), "egress_only_gateway"),
        (ip_network("0.0.0.0/0"), "internet_gateway"),
        (ip_network("2001:db8:200::/48"), "internet_gateway"),
    )
    networked.driver.check_really()
    # What is shown can be sent again, and changes nothing.
    before = await networked.row(vpc_id)
    networked.pass_time(1)
    again = (await networked.to("PATCH", path, {"routes": shown})).json()["route_table"]
    assert again["routes"] == shown
    assert (await networked.row(vpc_id)).generation == before.generation
    none = (await networked.to("PATCH", path, {"routes": None})).json()["route_table"]
    assert none["routes"] == shown[:2]


async def test_routes_that_cannot_be_are_refused(networked: World) -> None:
    _, path = await furnished(networked)
    await networked.vpc("other")
    await networked.make("internet-gateways", "loose")
    await networked.uplink("other")
    await networked.make("egress-only-gateways", "other", vpc="other")
    crn = f"crn:network:local:{ACCOUNT}"
    for target, destination, status in (
        ("local", "::/0", 400),
        ("out", "10.1.1.0/24", 400),  # within the VPC
        ("shop", "10.1.0.0/16", 400),
        ("out", "0.0.0.0/0", 400),  # IPv4 does not leave by it
        ("shop", "::1/0", 400),
        ("shop", "everywhere", 400),
        ("nowhere", "::/0", 404),
        ("other", "::/0", 400),  # both an internet gateway and an egress-only gateway
        (f"{crn}:egress-only-gateway/other", "::/0", 400),
        (f"{crn}:internet-gateway/other", "::/0", 400),
        ("loose", "::/0", 409),
        (f"{crn}:vpc/shop", "::/0", 400),
        ("crn:network:elsewhere:acme:internet-gateway/shop", "::/0", 400),
        ("No name", "::/0", 400),
    ):
        route = {"destination": destination, "target": target}
        answer = await networked.refused("PATCH", path, {"routes": [route]})
        assert answer[0] == status, (target, destination, answer)
    two = [
        {"destination": each, "target": f"{crn}:internet-gateway/{name}"}
        for each, name in (("::/0", "shop"), ("0.0.0.0/0", "other"))
    ]
    status, params = await networked.refused("PATCH", path, {"routes": two})
    assert (status, params) == (400, {"field": "routes[1].target", "reason": "other_vpc"})
    twice = [{"destination": each, "target": "out"} for each in ("::/0", "0::/0")]
    assert (await networked.refused("PATCH", path, {"routes": twice}))[0] == 400
    many = [{"destination": f"2001:db8:{n + 512:x}::/48", "target": "out"} for n in range(51)]
    assert (await networked.refused("PATCH", path, {"routes": many}))[0] == 400
    assert (await networked.to("PATCH", path, {"routes": many[:50]})).status_code == 200


@on_both_databases
async def test_a_subnet_uses_a_table_of_its_vpc_and_holds_it(networked: World) -> None:
    vpc = await networked.vpc()
    await networked.vpc("other")
    spare = await networked.make("route-tables", "spare", vpc="shop")
    subnet = await networked.make("subnets", "a", vpc="shop", cidr_ipv4="10.1.0.0/24")
    path = f"subnets/{subnet['id']}"
    status, params = await networked.refused("PATCH", path, {"route_table": "other-main"})
    assert (status, params["reason"]) == (400, "other_vpc")
    assert (await networked.refused("PATCH", path, {"route_table": "nowhere"}))[0] == 404
    generation = (await networked.row(vpc["id"])).generation
    changed = await networked.to("PATCH", path, {"route_table": "spare"})
    assert changed.json()["subnet"]["route_table"]["name"] == "spare"
    assert (await networked.row(vpc["id"])).generation > generation
    status, params = await networked.refused("DELETE", f"route-tables/{spare['id']}")
    assert (status, params) == (409, {"reason": "is_referred_to", "subnet": "a"})
    for none in (None, ""):
        cleared = await networked.to("PATCH", path, {"route_table": none})
        assert cleared.json()["subnet"]["route_table"]["name"] == "shop-main"
    assert (await networked.to("DELETE", f"route-tables/{spare['id']}")).status_code == 204


async def test_naming_a_gateway_needs_the_right_to_it(networked: World) -> None:
    """And who lacks it is not told whether there is one."""
    _, path = await furnished(networked)
    networked.tokens.add(
        "router",
        ACCOUNT,
        {"effect": "allow", "actions": ["network:UpdateRouteTable"], "resources": ["*"]},
    )
    answers = []
    for target in ("out", "nowhere"):
        body = {"routes": [{"destination": "::/0", "target": target}]}
        answer = await networked.to("PATCH", path, body, token="router")
        assert answer.status_code == 403
        answers.append(answer.json()["error"]["message"].replace("EgressOnly", "Internet"))
    assert answers[0] == answers[1]
    rule = {"direction": "inbound", "protocol": "all", "source": "shop-default"}
    making: dict[str, Any] = {
        "effect": "allow",
        "actions": ["network:CreateSecurityGroup"],
        "resources": ["*"],
    }
    seeing_vpcs = {**making, "actions": ["network:GetVpc", "network:CreateSecurityGroup"]}
    group: object = {"name": "web", "vpc": "shop", "rules": [rule]}
    for may, status in ((making, 403), (seeing_vpcs, 403), (ALLOW_ALL, 201)):
        networked.tokens.restrict("router", may)
        answer = await networked.to("POST", "security-groups", group, token="router")
        assert answer.status_code == status


async def test_a_group_lets_out_and_nothing_in_until_it_has_rules(networked: World) -> None:
    vpc = await networked.vpc()
    made = await networked.make("security-groups", "web", vpc="shop")
    everywhere = [
        {"direction": "outbound", "protocol": "all", "destination": each}
        for each in ("0.0.0.0/0", "::/0")
    ]
    assert made["rules"] == everywhere
    path = f"security-groups/{made['id']}"
    rules = [
        {"direction": "inbound", "protocol": "tcp", "port_from": 443, "source": "0.0.0.0/0"},
        {"direction": "inbound", "protocol": "udp", "port_from": 1, "port_to": 9, "source": "web"},
        {"direction": "outbound", "protocol": "icmp", "destination": made["crn"]},
    ]
    changed = (await networked.to("PATCH", path, {"rules": rules})).json()["security_group"]
    assert changed["rules"] == [
        {**rules[0], "port_to": 443},
        {**rules[1], "source": made["crn"]},
        rules[2],
    ]
    plan = await networked.plan(vpc["id"])
    assert {each.id: each for each in plan.groups}[made["id"]] == GroupPlan(
        made["id"],
        (
            RulePlan("inbound", "tcp", 443, 443, ip_network("0.0.0.0/0")),
            RulePlan("inbound", "udp", 1, 9, made["id"]),
            RulePlan("outbound", "icmp", None, None, made["id"]),
        ),
    )
    networked.driver.check_really()
    generation = (await networked.row(vpc["id"])).generation
    assert (await networked.to("PATCH", path, {"rules": changed["rules"]})).status_code == 200
    assert (await networked.row(vpc["id"])).generation == generation
    none = await networked.to("PATCH", path, {"rules": []})
    assert none.json()["security_group"]["rules"] == []
    cleared = await networked.to("PATCH", path, {"rules": None})
    assert cleared.json()["security_group"]["rules"] == everywhere


async def test_rules_that_cannot_be_are_refused(networked: World) -> None:
    await networked.vpc()
    await networked.vpc("other")
    made = await networked.make("security-groups", "web", vpc="shop")
    path = f"security-groups/{made['id']}"
    rule = {"direction": "inbound", "protocol": "tcp", "source": "::/0"}
    for change, status in (
        ({"direction": "in"}, 400),
        ({"protocol": "sctp"}, 400),
        ({"protocol": "icmp", "port_from": 1}, 400),
        ({"protocol": "all", "port_to": 1}, 400),
        ({"port_to": 1}, 400),
        ({"port_from": 2, "port_to": 1}, 400),
        ({"port_from": 0}, 400),
        ({"port_from": 65_536}, 400),
        ({"source": None}, 400),
        ({"destination": "::/0"}, 400),
        ({"direction": "outbound"}, 400),
        ({"source": "10.0.0.1/8"}, 400),
        ({"source": "10.0.0.0/8; accept"}, 400),
        ({"source": "nobody"}, 404),
        ({"source": "other-default"}, 400),
        ({"more": 1}, 400),
    ):
        answer = await networked.refused("PATCH", path, {"rules": [{**rule, **change}]})
        assert answer[0] == status, (change, answer)
    assert (await networked.refused("PATCH", path, {"rules": [rule] * 51}))[0] == 400
    for field in ("name", "vpc", "is_default"):
        _, params = await networked.refused("PATCH", path, {field: made[field]})
        assert params["reason"] == "unknown_field"


async def test_a_group_is_not_deleted_while_used(networked: World) -> None:
    await networked.vpc()
    subnet = await networked.make("subnets", "a", vpc="shop", cidr_ipv4="10.1.0.0/24")
    web = await networked.make("security-groups", "web", vpc="shop")
    rule = {"direction": "inbound", "protocol": "all", "source": "web"}
    base = await networked.make("security-groups", "base", vpc="shop", rules=[rule])
    path = f"security-groups/{web['id']}"
    interface = await networked.place(subnet["id"], web["id"])
    status, params = await networked.refused("DELETE", path)
    owner = f"crn:compute:local:{ACCOUNT}:instance/1"
    assert (status, params) == (409, {"reason": "in_use", "used_by": owner})
    change = LOCAL.set_groups
    await networked.database.write(change, interface.id, [base["id"]], networked.now)
    status, params = await networked.refused("DELETE", path)
    assert (status, params) == (409, {"reason": "is_referred_to", "security_group": "base"})
    await networked.to("PATCH", f"security-groups/{base['id']}", {"rules": []})
    assert (await networked.to("DELETE", path)).status_code == 204
    assert (await networked.refused("DELETE", f"security-groups/{base['id']}"))[0] == 409


@on_both_databases
async def test_a_deletion_and_a_rule_at_once_leave_no_rule_about_nothing(networked: World) -> None:
    vpc = await networked.vpc()
    base = await networked.make("security-groups", "base", vpc="shop")
    for number in range(4):
        gone = await networked.make("security-groups", f"gone-{number}", vpc="shop")
        rule = {"direction": "inbound", "protocol": "all", "source": gone["id"]}
        deleted, changed = await asyncio.gather(
            networked.to("DELETE", f"security-groups/{gone['id']}"),
            networked.to("PATCH", f"security-groups/{base['id']}", {"rules": [rule]}),
        )
        assert sorted((deleted.status_code, changed.status_code)) in ([200, 409], [204, 404])
        groups = (await networked.plan(vpc["id"])).groups
        ids = {each.id for each in groups}
        peers = {each.peer for group in groups for each in group.rules}
        assert {each for each in peers if isinstance(each, str)} <= ids

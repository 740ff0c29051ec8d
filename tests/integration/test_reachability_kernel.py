"""What is said to reach what, tried with packets between real hosts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from ipaddress import IPv6Address, IPv6Network
from itertools import permutations
from pathlib import Path

import pytest

from cloudcore.network.driver import GroupPlan, InterfacePlan, RulePlan, SubnetPlan, VpcPlan
from cloudcore.network.reachability import Kind, Place, between, from_internet, places, to_internet
from tests.network_lab import GLANCE, INTERNET_ADDRESS, PATIENCE, Lab, open_lab, ping, tcp, udp
from tests.network_plans import interface, is_way_in, is_way_out, new_id, subnet, vpc, with_gateways

PROBES: tuple[tuple[Kind, int], ...] = (("tcp", 5080), ("tcp", 5443), ("udp", 5053), ("icmp", 0))


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    async with open_lab(tmp_path) as made:
        yield made


def layered() -> VpcPlan:
    """Return a VPC with a subnet that is open, one with a way out, and one with none."""
    web, app, data = (new_id() for _ in range(3))
    everywhere = RulePlan("outbound", "all")
    groups = (
        GroupPlan(
            web,
            (
                RulePlan("inbound", "tcp", 5443),
                RulePlan("inbound", "tcp", 5080, None, IPv6Network("2600::/16")),
                RulePlan("inbound", "icmp"),
                everywhere,
            ),
        ),
        GroupPlan(
            app,
            (
                RulePlan("inbound", "tcp", 5000, 5100, web),
                RulePlan("inbound", "tcp", 5443),  # which the internet cannot use
                RulePlan("inbound", "udp", None, None, app),
                everywhere,
            ),
        ),
        GroupPlan(
            data,
            (
                RulePlan("inbound", "all", None, None, app),
                RulePlan("outbound", "udp", 5053, None, app),
            ),
        ),
    )
    front = subnet("10.0.0.0/24", "2001:db8:1::/64", "internet_gateway")
    middle = subnet("10.0.1.0/24", "2001:db8:1:1::/64", "egress_only_gateway")
    back = subnet("10.0.2.0/24", "2001:db8:1:2::/64")
    interfaces = (
        interface(front, 4, groups[0]),
        interface(middle, 4, groups[1]),
        interface(middle, 5, groups[1]),
        interface(back, 4, groups[2]),
    )
    plan = replace(vpc(front, middle, back, groups=groups), interfaces=interfaces)
    return with_gateways(replace(plan, cidr_ipv6=IPv6Network("2001:db8:1::/56")))


def passes(kind: Kind, port: int, source: Path, target: Path, to: str, *, said: bool) -> bool:
    """Return True if a flow begins; wait long only for what is said to."""
    wait = PATIENCE if said else GLANCE
    begin: dict[str, Callable[[], str]] = {
        "tcp": lambda: tcp(source, target, to, wait, port),
        "udp": lambda: udp(source, target, to, wait, port),
        "icmp": lambda: ping(source, target, to, wait),
    }
    return begin[kind]() == "answers"


def subnet_of(plan: VpcPlan, of: InterfacePlan) -> SubnetPlan:
    return next(each for each in plan.subnets if each.id == of.subnet_id)


async def test_what_is_said_to_begin_begins_and_nothing_else_does(lab: Lab) -> None:
    plan = layered()
    await lab.driver.apply(plan)
    hosts = {each.id: await lab.add(plan, each) for each in plan.interfaces}
    found = {one.id: place for place in places(plan) for one in place.interfaces}
    outside = IPv6Address(INTERNET_ADDRESS)

    def inside() -> Iterator[tuple[str, bool, bool]]:
        for source, target in permutations(plan.interfaces, 2):
            for kind, port in PROBES:
                said = between(found[source.id], found[target.id], 6).has(kind, port)
                ends = hosts[source.id], hosts[target.id], str(target.address_ipv6)
                yield f"{ends[2]} {kind}", said, passes(kind, port, *ends, said=said)

    def with_internet() -> Iterator[tuple[str, bool, bool]]:
        for each in plan.interfaces:
            where, host, place = subnet_of(plan, each), hosts[each.id], found[each.id]
            for kind, port in PROBES:
                said = is_way_out(plan, where, outside) and _has(place, kind, port, outward=True)
                ends = host, lab.internet, INTERNET_ADDRESS
                yield f"out {kind}", said, passes(kind, port, *ends, said=said)
                said = is_way_in(plan, where, outside) and _has(place, kind, port, outward=False)
                ends = lab.internet, host, str(each.address_ipv6)
                yield f"in {ends[2]} {kind} {port}", said, passes(kind, port, *ends, said=said)

    tried = [*inside(), *with_internet()]
    assert [each for each in tried if each[1] != each[2]] == []
    assert {said for _, said, _ in tried} == {True, False}
    assert sum(said for _, said, _ in tried) > 20  # of some eighty


def _has(place: Place, kind: Kind, port: int, *, outward: bool) -> bool:
    said = to_internet(place) if outward else from_internet(place)
    outside = IPv6Address(INTERNET_ADDRESS)
    return any(outside in each.network and each.traffic.has(kind, port) for each in said)

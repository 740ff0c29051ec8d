"""What is said to reach what is what the rendered rules let pass, for every plan and packet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from itertools import pairwise, permutations, product
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudcore.network.driver import (
    Direction,
    GroupPlan,
    InterfacePlan,
    RulePlan,
    RuleProtocol,
    Target,
    VpcPlan,
)
from cloudcore.network.drivers.rules import UPLINK, link_of, render
from cloudcore.network.ranges import GLOBAL
from cloudcore.network.reachability import (
    EVERYTHING,
    KINDS,
    NOTHING,
    Kind,
    Network,
    Outside,
    Place,
    Traffic,
    between,
    from_internet,
    gateway_of,
    is_open,
    places,
    to_internet,
)
from tests.network_plans import EVERYTHING as EVERYTHING_BEGINS
from tests.network_plans import (
    INTERNET,
    interface,
    is_way_in,
    is_way_out,
    plans,
    subnet,
    vpc,
    with_gateways,
)
from tests.rules_evaluation import Address, Packet, Ruleset
from tests.soak import times

_PORTS = st.sampled_from((0, 22, 80, 443, 65535)) | st.integers(0, 65535)
_KINDS: st.SearchStrategy[Kind] = st.sampled_from(KINDS)
_NAMES = {"other": "gre"}


@st.composite
def _near(draw: st.DrawFn) -> VpcPlan:
    """Draw a plan whose rules are about its own addresses and common ports, more often than not."""
    plan = draw(plans())
    addresses = [a for each in plan.interfaces for a in _addresses(each)]
    if not addresses:
        return plan
    peers = st.none() | st.sampled_from(
        [INTERNET, *(_around(each) for each in addresses), *(each.id for each in plan.groups)]
    )
    rule = st.builds(
        _rule,
        st.sampled_from(("inbound", "outbound")),
        st.sampled_from(("all", "tcp", "udp", "icmp")),
        st.sampled_from(((None, None), (80, None), (80, 443), (443, 65535))),
        peers,
    )
    groups = tuple(
        GroupPlan(each.id, (*each.rules, *draw(st.lists(rule, min_size=1, max_size=4))))
        for each in plan.groups
    )
    ids = [each.id for each in groups]
    interfaces = tuple(
        replace(each, group_ids=(*each.group_ids, draw(st.sampled_from(ids))))
        for each in plan.interfaces
    )
    return replace(plan, groups=groups, interfaces=interfaces)


def _rule(
    direction: Direction,
    protocol: RuleProtocol,
    ports: tuple[int | None, int | None],
    peer: Network | str | None,
) -> RulePlan:
    first, last = ports if protocol in {"tcp", "udp"} else (None, None)
    return RulePlan(direction, protocol, first, last, peer)


def _around(address: Address) -> Network:
    if isinstance(address, IPv4Address):
        return IPv4Network((int(address), 30), strict=False)
    return IPv6Network((int(address), 126), strict=False)


def _addresses(of: InterfacePlan) -> list[Address]:
    return [each for each in (of.address_ipv4, of.address_ipv6) if each is not None]


def _lets(rules: Ruleset, source: InterfacePlan, target: InterfacePlan, packet: Packet) -> bool:
    """Return True if a packet passes all hooks on its way from an interface to another."""
    if source.is_balancer and target.is_balancer:
        over = replace(packet, iif="lo", oif="lo")
        return rules.lets("output", over) and rules.lets("input", over)
    if source.is_balancer:
        return rules.lets("output", replace(packet, oif=link_of(target.id)))
    if target.is_balancer:
        return rules.lets("input", replace(packet, iif=link_of(source.id)))
    return rules.lets("forward", replace(packet, iif=link_of(source.id), oif=link_of(target.id)))


def _place_of(plan: VpcPlan, of: InterfacePlan) -> Place:
    (found,) = [each for each in places(plan) if of in each.interfaces]
    return found


@settings(max_examples=times(30))
@given(_near(), _KINDS, _PORTS)
def test_what_places_let_begin_is_what_the_rules_let_pass_between_each_two_interfaces(
    plan: VpcPlan, kind: Kind, port: int
) -> None:
    rules = Ruleset(render(plan))
    for source, target in permutations(plan.interfaces, 2):
        said = _place_of(plan, source), _place_of(plan, target)
        for here in _addresses(source):
            for there in _addresses(target):
                if here.version != there.version:
                    continue
                packet = Packet(here, there, _NAMES.get(kind, kind), port)
                may = between(*said, here.version)
                at = port if kind in {"tcp", "udp"} else 0
                assert may.has(kind, at) == _lets(rules, source, target, packet), packet


_OUTSIDE = tuple(map(IPv6Address, ("2600::1", "2600:1::1", "2a00::1", "fd11::1", "4000::1")))
_WAYS = tuple(map(IPv6Network, ("::/0", "2600::/16", "2600::/32", "2000::/3", "fd00::/8")))


@st.composite
def _open(draw: st.DrawFn) -> VpcPlan:
    """Draw a plan whose routes and rules are about addresses of `_OUTSIDE`."""
    plan = draw(_near())
    targets: st.SearchStrategy[Target] = st.sampled_from(get_args(Target))
    routes = st.dictionaries(st.sampled_from(_WAYS), targets, max_size=3)
    subnets = tuple(replace(each, routes=tuple(draw(routes).items())) for each in plan.subnets)
    peers = st.none() | st.sampled_from(_WAYS)
    groups = tuple(
        GroupPlan(
            each.id,
            (
                *each.rules,
                _rule("inbound", draw(st.sampled_from(("tcp", "all"))), (80, None), draw(peers)),
                _rule("outbound", draw(st.sampled_from(("tcp", "all"))), (80, None), draw(peers)),
            ),
        )
        for each in plan.groups
    )
    there = draw(st.sampled_from(((True, True), (True, True), (True, False), (False, True))))
    return replace(
        plan,
        subnets=subnets,
        groups=groups,
        internet_gateway=there[0],
        egress_only_gateway=there[1],
    )


@settings(max_examples=times(30))
@given(_open(), _KINDS, _PORTS)
def test_what_is_said_of_the_internet_is_what_the_rules_let_pass(
    plan: VpcPlan, kind: Kind, port: int
) -> None:
    rules = Ruleset(render(plan))
    at = port if kind in {"tcp", "udp"} else 0
    for each in plan.interfaces:
        place, link = _place_of(plan, each), link_of(each.id)
        hooks = ("output", "input") if each.is_balancer else ("forward", "forward")
        out, back = to_internet(place), from_internet(place)
        if each.address_ipv6 is None:
            assert not out
            assert not back
            continue
        for outside in _OUTSIDE:
            protocol = _NAMES.get(kind, kind)
            packet = Packet(each.address_ipv6, outside, protocol, port, link, UPLINK)
            may = is_way_out(plan, place.subnet, outside) and _has(out, outside, kind, at)
            assert may == rules.lets(hooks[0], packet), packet
            packet = Packet(outside, each.address_ipv6, protocol, port, UPLINK, link)
            if outside in GLOBAL:
                may = is_way_in(plan, place.subnet, outside) and _has(back, outside, kind, at)
                assert may == rules.lets(hooks[1], packet), packet
            assert all(network.network.subnet_of(GLOBAL) for network in (*out, *back))


_TARGETS = (None, *get_args(Target))


@pytest.mark.parametrize("prefix", ["2001:db8::/64", "fd00::/64"])
@pytest.mark.parametrize("gateways", list(product((True, False), repeat=2)))
def test_the_ways_of_a_subnet_are_those_of_its_routes_to_gateways_that_are_there(
    prefix: str, gateways: tuple[bool, bool]
) -> None:
    """Where groups let everything begin, the way alone decides."""
    group = GroupPlan("00000000-0000-7000-8000-000000000001", EVERYTHING_BEGINS)
    for wide, narrow in product(_TARGETS, repeat=2):
        chosen = zip(_WAYS[:2], (wide, narrow), strict=True)
        routes = tuple((network, target) for network, target in chosen if target is not None)
        inside = replace(subnet("10.0.0.0/24", prefix), routes=routes)
        one = interface(inside, 4, group)
        plan = replace(
            vpc(inside, groups=(group,)),
            interfaces=(one,),
            internet_gateway=gateways[0],
            egress_only_gateway=gateways[1],
        )
        rules, here, link = Ruleset(render(plan)), one.address_ipv6, link_of(one.id)
        assert here is not None
        for outside in _OUTSIDE:
            out = rules.lets("forward", Packet(here, outside, "tcp", 80, link, UPLINK))
            assert is_way_out(plan, inside, outside) == out, (routes, outside)
            if outside in GLOBAL:
                back = rules.lets("forward", Packet(outside, here, "tcp", 80, UPLINK, link))
                assert is_way_in(plan, inside, outside) == back, (routes, outside)
        assert is_open(plan, inside) == any(is_way_in(plan, inside, each) for each in _OUTSIDE[:3])
        shown = gateway_of(plan, inside)
        there = {"internet_gateway": gateways[0], "egress_only_gateway": all(gateways)}
        led = [each for each in (wide, narrow) if each is not None and there.get(each)]
        assert shown == (led[0] if led and prefix.startswith("2001") else None)


def _has(said: Sequence[Outside], outside: IPv6Address, kind: Kind, port: int) -> bool:
    return any(outside in each.network and each.traffic.has(kind, port) for each in said)


@given(plans())
def test_no_ipv4_leaves_a_vpc(plan: VpcPlan) -> None:
    rules = Ruleset(render(plan))
    for each in plan.interfaces:
        if each.address_ipv4 is not None and not each.is_balancer:
            out = Packet(
                each.address_ipv4, IPv4Address("192.0.2.1"), "tcp", 80, link_of(each.id), UPLINK
            )
            assert not rules.lets("forward", out)


_parts = st.lists(
    st.builds(
        lambda protocol, first, size: _rule("inbound", protocol, (first, first + size), None),
        st.sampled_from(("all", "tcp", "udp", "icmp")),
        st.integers(0, 30),
        st.integers(0, 10),
    ),
    max_size=5,
)


def _of(rules: list[RulePlan]) -> Traffic:
    """Return the traffic of rules, by a VPC that has them."""
    group = GroupPlan("00000000-0000-7000-8000-000000000001", tuple(rules))
    sender = GroupPlan("00000000-0000-7000-8000-000000000002", (RulePlan("outbound", "all"),))
    inside = subnet("10.0.0.0/24")
    plan = replace(
        vpc(inside, groups=(group, sender)),
        interfaces=(interface(inside, 4, group), interface(inside, 5, sender)),
    )
    target, source = places(plan)
    return between(source, target, 4)


@given(_parts, _parts, _KINDS, st.integers(0, 50))
def test_traffic_is_a_set_of_packets(
    one: list[RulePlan], other: list[RulePlan], kind: Kind, port: int
) -> None:
    a, b, at = _of(one), _of(other), port if kind in {"tcp", "udp"} else 0
    assert (a | b).has(kind, at) == (a.has(kind, at) or b.has(kind, at))
    assert (a & b).has(kind, at) == (a.has(kind, at) and b.has(kind, at))
    assert a | b == b | a
    for _, ranges in (a | b).ranges:  # as few as there can be
        assert all(last + 1 < first for (_, last), (first, _) in pairwise(ranges))
    assert a & EVERYTHING == a | NOTHING == a
    assert bool(a) == any(a.has(each, p) for each in KINDS for p in range(50))


def test_an_interface_in_several_groups_has_what_each_of_them_lets() -> None:
    groups = [
        GroupPlan(
            f"00000000-0000-7000-8000-00000000000{number}",
            (RulePlan("inbound", "tcp", port), RulePlan("outbound", "udp", port)),
        )
        for number, port in ((1, 80), (2, 443))
    ]
    open_one = GroupPlan("00000000-0000-7000-8000-000000000003", EVERYTHING_BEGINS)
    inside = subnet("10.0.0.0/24")
    plan = replace(
        vpc(inside, groups=(*groups, open_one)),
        interfaces=(interface(inside, 4, *groups), interface(inside, 5, open_one)),
    )
    of_both, other = places(plan)
    assert between(other, of_both, 4).ranges == (("tcp", ((80, 80), (443, 443))),)
    assert between(of_both, other, 4).ranges == (("udp", ((80, 80), (443, 443))),)


def test_ranges_that_touch_are_one() -> None:
    rules = [_rule("inbound", "tcp", ports, None) for ports in ((6, 10), (1, 5), (12, 12))]
    assert _of(rules).ranges == (("tcp", ((1, 10), (12, 12))),)


def test_interfaces_that_no_rule_tells_apart_are_one_place() -> None:
    group = GroupPlan("00000000-0000-7000-8000-000000000001", (RulePlan("outbound", "all"),))
    inside = subnet("10.0.0.0/24", "2001:db8::/64", "internet_gateway")
    alike = tuple(interface(inside, number, group) for number in range(4, 104))
    plan = with_gateways(replace(vpc(inside, groups=(group,)), interfaces=alike))
    (place,) = places(plan)
    assert place.interfaces == alike
    assert to_internet(place) == [Outside(GLOBAL, EVERYTHING)]
    assert from_internet(place) == []

    of_some = RulePlan("inbound", "tcp", 80, None, IPv4Network("10.0.0.0/26"))
    told = replace(plan, groups=(GroupPlan(group.id, (*group.rules, of_some)),))
    assert sorted(len(each.interfaces) for each in places(told)) == [40, 60]

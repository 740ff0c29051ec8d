"""Plans of VPCs for tests: one that is written down, and any, for properties."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network, IPv6Address, IPv6Network
from typing import get_args
from uuid import uuid4

from hypothesis import strategies as st

from cloudcore.network.driver import (
    GroupPlan,
    InterfacePlan,
    RulePlan,
    RuleProtocol,
    SubnetPlan,
    Target,
    VpcPlan,
)
from cloudcore.network.drivers.rules import is_egress_only
from cloudcore.network.ranges import GLOBAL

INTERNET = IPv6Network("::/0")
EVERYTHING = (RulePlan("outbound", "all"), RulePlan("inbound", "all"))
OUTBOUND = (RulePlan("outbound", "all"),)


def new_id() -> str:
    """Return an id that no other test has, as all share the kernel."""
    return str(uuid4())


def subnet(ipv4: str, ipv6: str | None = None, gateway: Target | None = None) -> SubnetPlan:
    """Return a subnet whose route table sends the internet to a gateway."""
    routes = () if gateway is None else ((INTERNET, gateway),)
    return SubnetPlan(new_id(), IPv4Network(ipv4), IPv6Network(ipv6) if ipv6 else None, routes)


def interface(where: SubnetPlan, number: int, *groups: GroupPlan) -> InterfacePlan:
    """Return the interface that has the addresses of a subnet with this number."""
    return InterfacePlan(
        new_id(),
        where.id,
        where.cidr_ipv4[number] if where.cidr_ipv4 else None,
        where.cidr_ipv6[number] if where.cidr_ipv6 else None,
        tuple(each.id for each in groups),
    )


def vpc(*subnets: SubnetPlan, groups: tuple[GroupPlan, ...] = ()) -> VpcPlan:
    """Return a VPC with the subnets, without gateways and interfaces."""
    return VpcPlan(
        new_id(), IPv4Network("10.0.0.0/16"), IPv6Network("2001:db8::/32"), subnets, groups
    )


def is_way_out(plan: VpcPlan, subnet: SubnetPlan, address: IPv6Address) -> bool:
    """Return True if the route table of a subnet leads to an address of the internet."""
    return address in GLOBAL and _gateway_to(plan, subnet, address) is not None


def is_way_in(plan: VpcPlan, subnet: SubnetPlan, address: IPv6Address) -> bool:
    """Return True if an address of the internet may begin flows to a subnet."""
    if is_egress_only(plan, subnet):
        return False
    return _gateway_to(plan, subnet, address) == "internet_gateway"


def _gateway_to(plan: VpcPlan, subnet: SubnetPlan, address: IPv6Address) -> str | None:
    """Return the gateway of the longest route, if it is there and the subnet has a global range."""
    routes = [
        (network.prefixlen, target)
        for network, target in subnet.routes
        if isinstance(network, IPv6Network) and address in network
    ]
    is_global = subnet.cidr_ipv6 is not None and subnet.cidr_ipv6.subnet_of(GLOBAL)
    target = max(routes)[1] if routes and is_global and plan.internet_gateway else "local"
    is_there = target == "internet_gateway" or plan.egress_only_gateway
    return target if target != "local" and is_there else None


def with_gateways(plan: VpcPlan, *, egress_only: bool = True) -> VpcPlan:
    """Return a VPC with an internet gateway, and an egress-only gateway."""
    return replace(plan, internet_gateway=True, egress_only_gateway=egress_only)


_networks_ipv4 = st.builds(
    lambda number, length: IPv4Network((number, length), strict=False),
    st.integers(0, 2**32 - 1),
    st.integers(0, 32),
)
_networks_ipv6 = st.builds(
    lambda number, length: IPv6Network((number, length), strict=False),
    st.integers(0, 2**128 - 1),
    st.integers(0, 128),
)
_networks = _networks_ipv4 | _networks_ipv6
_ids = st.uuids().map(str)
_protocols: st.SearchStrategy[RuleProtocol] = st.sampled_from(get_args(RuleProtocol))
_targets: st.SearchStrategy[Target] = st.sampled_from(get_args(Target))
_ports = st.none() | st.tuples(st.integers(0, 65535), st.none() | st.integers(0, 65535))


@st.composite
def _rules(draw: st.DrawFn, group_ids: list[str]) -> RulePlan:
    protocol = draw(_protocols)
    ports = draw(_ports) if protocol in {"tcp", "udp"} else None
    first, last = ports or (None, None)
    if first is not None and last is not None:
        first, last = min(first, last), max(first, last)
    peer = draw(st.none() | _networks | st.sampled_from(group_ids) | _ids)
    return RulePlan(draw(st.sampled_from(("inbound", "outbound"))), protocol, first, last, peer)


@st.composite
def plans(draw: st.DrawFn) -> VpcPlan:
    """Draw a VPC: its subnets lie in ranges of their own, all else is free."""
    subnets = []
    for number in range(draw(st.integers(0, 4))):
        prefix = draw(st.sampled_from((0x2001_0DB8, 0xFD00_0000)))
        ipv6 = IPv6Network(((prefix << 96) + (number << 64), 64))
        routes = draw(
            st.lists(
                st.tuples(_networks | st.just(INTERNET), _targets),
                max_size=4,
                unique_by=lambda route: route[0],
            )
        )
        subnets.append(
            SubnetPlan(
                draw(_ids),
                draw(st.sampled_from((None, IPv4Network(f"10.0.{number}.0/24")))),
                draw(st.sampled_from((None, ipv6))),
                tuple(routes),
            )
        )
    group_ids = draw(st.lists(_ids, min_size=1, max_size=3, unique_by=lambda each: each[-12:]))
    groups = [
        GroupPlan(each, tuple(draw(st.lists(_rules(group_ids), max_size=4)))) for each in group_ids
    ]
    interfaces = []
    for number, each in enumerate(draw(st.lists(_ids, max_size=5, unique_by=lambda i: i[-12:]))):
        if not subnets:
            break
        where = draw(st.sampled_from(subnets))
        interfaces.append(
            InterfacePlan(
                each,
                where.id,
                where.cidr_ipv4[4 + number] if where.cidr_ipv4 else None,
                where.cidr_ipv6[4 + number] if where.cidr_ipv6 else None,
                tuple(draw(st.lists(st.sampled_from(group_ids) | _ids, max_size=3))),
                draw(st.booleans()),
            )
        )
    return VpcPlan(
        str(draw(st.uuids())),
        IPv4Network("10.0.0.0/16"),
        IPv6Network("2001:db8::/32"),
        tuple(subnets),
        tuple(groups),
        tuple(interfaces),
        draw(st.booleans()),
        draw(st.booleans()),
    )

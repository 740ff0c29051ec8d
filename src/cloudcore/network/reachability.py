"""Who can begin flows to whom in a VPC, and which: read from the plan that its rules are made of.

Interfaces that no rule tells apart are one *place*: same subnet, same groups, in the same of the
networks that rules name. So what holds between places holds between each of their interfaces, and
a VPC with thousands of instances has as many places as its owner has made kinds of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, Literal, NamedTuple, TypeAlias

from cloudcore.network.plan import (
    Direction,
    InterfacePlan,
    RulePlan,
    SubnetPlan,
    VpcPlan,
)
from cloudcore.network.rules import GLOBAL, is_egress_only

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
Version = Literal[4, 6]
Kind = Literal["tcp", "udp", "icmp", "other"]
"""What packets are; ``other`` is every protocol that rules name by ``all`` alone."""
KINDS: Final[tuple[Kind, ...]] = ("tcp", "udp", "icmp", "other")
_LAST_PORT: Final = 65_535
_PORTS: Final = {"tcp": (0, _LAST_PORT), "udp": (0, _LAST_PORT), "icmp": (0, 0), "other": (0, 0)}


@dataclass(frozen=True, slots=True)
class Traffic:
    """What may begin: ranges of ports by protocol, ascending, none touching the next."""

    ranges: tuple[tuple[Kind, tuple[tuple[int, int], ...]], ...] = ()

    @property
    def is_everything(self) -> bool:
        """Return True if it is every packet."""
        return self == EVERYTHING

    def has(self, kind: Kind, port: int = 0) -> bool:
        """Return True if a packet to a port may begin a flow."""
        found = dict(self.ranges).get(kind, ())
        return any(first <= port <= last for first, last in found)

    def __bool__(self) -> bool:
        """Return True if it is anything."""
        return bool(self.ranges)

    def __or__(self, other: Traffic) -> Traffic:
        """Return what is in either."""
        return _traffic((*_flat(self), *_flat(other)))

    def __and__(self, other: Traffic) -> Traffic:
        """Return what is in both."""
        return _traffic(
            (kind, max(first, from_), min(last, to))
            for kind, first, last in _flat(self)
            for same, from_, to in _flat(other)
            if kind == same and max(first, from_) <= min(last, to)
        )


def _flat(traffic: Traffic) -> Iterator[tuple[Kind, int, int]]:
    for kind, ranges in traffic.ranges:
        for first, last in ranges:
            yield kind, first, last


def _traffic(parts: Iterable[tuple[Kind, int, int]]) -> Traffic:
    found: dict[Kind, list[tuple[int, int]]] = {kind: [] for kind in KINDS}
    for kind, first, last in sorted(parts):
        ranges = found[kind]
        if ranges and first <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], max(ranges[-1][1], last))
        else:
            ranges.append((first, last))
    return Traffic(tuple((kind, tuple(ranges)) for kind, ranges in found.items() if ranges))


NOTHING: Final = Traffic()
EVERYTHING: Final = _traffic((kind, *_PORTS[kind]) for kind in KINDS)


@dataclass(frozen=True, slots=True)
class Place:
    """Interfaces of a subnet that no rule tells apart."""

    subnet: SubnetPlan
    group_ids: tuple[str, ...]
    is_balancer: bool
    interfaces: tuple[InterfacePlan, ...]
    """At least one."""

    def address(self, version: Version) -> Address | None:
        """Return an address of one of its interfaces, for all."""
        one = self.interfaces[0]
        return one.address_ipv4 if version == 4 else one.address_ipv6


class Outside(NamedTuple):
    """What may begin with some addresses of the internet."""

    network: IPv6Network
    """As a rule names it; `GLOBAL` stands for all."""
    traffic: Traffic


def places(plan: VpcPlan) -> Sequence[Place]:
    """Return the places of a VPC, in the order of their first interfaces."""
    subnets = {each.id: each for each in plan.subnets}
    known = {each.id for each in plan.groups}
    networks = {
        rule.peer
        for group in plan.groups
        for rule in group.rules
        if isinstance(rule.peer, IPv4Network | IPv6Network)
    }
    named = sorted(networks, key=str)
    found: defaultdict[tuple[object, ...], list[InterfacePlan]] = defaultdict(list)
    for each in plan.interfaces:
        if each.subnet_id in subnets:
            addresses = [a for a in (each.address_ipv4, each.address_ipv6) if a is not None]
            inside = tuple(any(a in network for a in addresses) for network in named)
            versions = tuple(a.version for a in addresses)
            groups = tuple(dict.fromkeys(each.group_ids))
            found[each.subnet_id, groups, each.is_balancer, versions, inside].append(each)
    return [
        Place(
            subnets[alike[0].subnet_id],
            tuple(each for each in dict.fromkeys(alike[0].group_ids) if each in known),
            alike[0].is_balancer,
            tuple(alike),
        )
        for alike in found.values()
    ]


def between(plan: VpcPlan, source: Place, target: Place, version: Version) -> Traffic:
    """Return what an interface of `source` may begin to another one, which is of `target`."""
    here, there = source.address(version), target.address(version)
    if here is None or there is None:
        return NOTHING
    if source.is_balancer and target.is_balancer:
        return EVERYTHING  # both are the namespace itself
    may = _allowed(plan, source, "outbound", there, target.interfaces[0].group_ids)
    return may & _allowed(plan, target, "inbound", here, source.interfaces[0].group_ids)


def to_internet(plan: VpcPlan, source: Place) -> Sequence[Outside]:
    """Return what may begin to the internet, where `is_way_out` has a route there."""
    if source.is_balancer or not _may_be_outside(source):
        return ()
    return _outside(plan, source, "outbound")


def from_internet(plan: VpcPlan, target: Place) -> Sequence[Outside]:
    """Return what the internet may begin, from where `is_way_in` has a route."""
    if target.is_balancer or not _may_be_outside(target):
        return ()
    return _outside(plan, target, "inbound")


def is_way_out(plan: VpcPlan, subnet: SubnetPlan, address: IPv6Address) -> bool:
    """Return True if the route table of a subnet leads to an address of the internet."""
    return address in GLOBAL and _gateway_to(plan, subnet, address) is not None


def is_way_in(plan: VpcPlan, subnet: SubnetPlan, address: IPv6Address) -> bool:
    """Return True if an address of the internet may begin flows to a subnet."""
    if is_egress_only(plan, subnet):
        return False
    return _gateway_to(plan, subnet, address) == "internet_gateway"


def is_open(plan: VpcPlan, subnet: SubnetPlan) -> bool:
    """Return True if something of the internet may begin flows to a subnet, as groups allow."""
    targets = [each for to, each in subnet.routes if isinstance(to, IPv6Network)]
    is_there = "internet_gateway" in [_there(plan, each) for each in targets]
    return _has_global(subnet) and is_there and not is_egress_only(plan, subnet)


def gateway_of(plan: VpcPlan, subnet: SubnetPlan) -> str | None:
    """Return the gateway by which a subnet has its way to the internet, None if it has none.

    It is that of ``::/0``, and else that of the widest route that leads out.
    """
    routes = [
        (network, gateway)
        for network, target in subnet.routes
        if isinstance(network, IPv6Network) and (gateway := _there(plan, target))
    ]
    if not _has_global(subnet) or not routes:
        return None
    return min(routes, key=lambda each: each[0].prefixlen)[1]


def _gateway_to(plan: VpcPlan, subnet: SubnetPlan, address: IPv6Address) -> str | None:
    routes = [
        (network, target)
        for network, target in subnet.routes
        if isinstance(network, IPv6Network) and address in network
    ]
    if not _has_global(subnet) or not routes:
        return None
    return _there(plan, max(routes, key=lambda each: each[0].prefixlen)[1])


def _there(plan: VpcPlan, target: str) -> str | None:
    """Return the gateway that a route leads to; None for others, and one that is not there."""
    if not plan.internet_gateway or target == "local":
        return None
    return target if target == "internet_gateway" or plan.egress_only_gateway else None


def _has_global(subnet: SubnetPlan) -> bool:
    return subnet.cidr_ipv6 is not None and subnet.cidr_ipv6.subnet_of(GLOBAL)


def _may_be_outside(place: Place) -> bool:
    return _has_global(place.subnet) and place.address(6) is not None


def _outside(plan: VpcPlan, place: Place, direction: Direction) -> Sequence[Outside]:
    """Return what rules let begin with the internet, by the networks that they name."""
    found: dict[IPv6Network, Traffic] = {}
    for rule in _rules(plan, place, direction):
        if rule.peer is None:
            network = GLOBAL
        elif isinstance(rule.peer, IPv6Network) and rule.peer.overlaps(GLOBAL):
            network = rule.peer if rule.peer.subnet_of(GLOBAL) else GLOBAL
        else:
            continue
        found[network] = found.get(network, NOTHING) | _of_rule(rule)
    return [Outside(network, found[network]) for network in sorted(found, key=str)]


def _allowed(
    plan: VpcPlan, place: Place, direction: Direction, peer: Address, peer_groups: Sequence[str]
) -> Traffic:
    """Return what the groups of a place let begin with an address of the VPC."""
    return _traffic(
        part
        for rule in _rules(plan, place, direction)
        if rule.peer is None
        or (peer in rule.peer if not isinstance(rule.peer, str) else rule.peer in peer_groups)
        for part in _flat(_of_rule(rule))
    )


def _rules(plan: VpcPlan, place: Place, direction: Direction) -> Iterator[RulePlan]:
    groups: Mapping[str, Sequence[RulePlan]] = {each.id: each.rules for each in plan.groups}
    for group_id in place.group_ids:
        yield from (rule for rule in groups[group_id] if rule.direction == direction)


def _of_rule(rule: RulePlan) -> Traffic:
    if rule.protocol == "all":
        return EVERYTHING
    first, last = _PORTS[rule.protocol]
    if rule.protocol != "icmp" and rule.port_from is not None:
        first = rule.port_from
        last = first if rule.port_to is None else rule.port_to
    return _traffic([(rule.protocol, first, last)])

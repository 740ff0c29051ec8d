"""Compute from the plan of a VPC which flows can begin within it, and to and from the internet.

Interfaces that no rule distinguishes are one *place*: they have the same subnet and the same
groups, and lie in the same networks among those that are peers in rules. A result about a place
holds for each of its interfaces. So a VPC with thousands of instances has only as many places as
kinds of instances.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, Literal, NamedTuple, TypeAlias

from cloudcore.network.driver import GroupPlan, InterfacePlan, RulePlan, SubnetPlan, VpcPlan
from cloudcore.network.drivers.rules import existing_gateway, is_egress_only, is_global
from cloudcore.network.ranges import GLOBAL

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
Version = Literal[4, 6]
Kind = Literal["tcp", "udp", "icmp", "other"]
"""The protocol of a packet; ``other`` is every protocol that only ``all`` in a rule includes."""
KINDS: Final[tuple[Kind, ...]] = ("tcp", "udp", "icmp", "other")
_LAST_PORT: Final = 65_535
_PORTS: Final = {"tcp": (0, _LAST_PORT), "udp": (0, _LAST_PORT), "icmp": (0, 0), "other": (0, 0)}


_Ranges: TypeAlias = tuple[tuple[int, int], ...]
_Peer: TypeAlias = IPv4Network | IPv6Network | str | None


@dataclass(frozen=True, slots=True)
class Traffic:
    """Flows that may begin: for each protocol, sorted port ranges that do not touch."""

    ranges: tuple[tuple[Kind, _Ranges], ...] = ()

    def has(self, kind: Kind, port: int = 0) -> bool:
        """Return True if a flow of this protocol to this port may begin."""
        found = dict(self.ranges).get(kind, ())
        return any(first <= port <= last for first, last in found)

    def __bool__(self) -> bool:
        """Return True if anything is allowed."""
        return bool(self.ranges)

    def __or__(self, other: Traffic) -> Traffic:
        """Return the flows that either of the two allows."""
        return _traffic((*_flat(self), *_flat(other)))

    def __and__(self, other: Traffic) -> Traffic:
        """Return the flows that both allow."""
        mine, others = dict(self.ranges), dict(other.ranges)
        both = ((kind, _common(mine.get(kind, ()), others.get(kind, ()))) for kind in KINDS)
        return Traffic(tuple((kind, ranges) for kind, ranges in both if ranges))


def _common(one: _Ranges, other: _Ranges) -> _Ranges:
    """Return the ports that are in both lists of ranges, in one pass over each list."""
    found, at, to = [], 0, 0
    while at < len(one) and to < len(other):
        first, last = max(one[at][0], other[to][0]), min(one[at][1], other[to][1])
        if first <= last:
            found.append((first, last))
        if one[at][1] < other[to][1]:
            at += 1
        else:
            to += 1
    return tuple(found)


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


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Interfaces of one subnet that no rule distinguishes."""

    subnet: SubnetPlan
    group_ids: tuple[str, ...]
    is_balancer: bool
    interfaces: tuple[InterfacePlan, ...]
    """At least one."""
    outbound: Mapping[_Peer, Traffic]
    """The flows that its groups allow it to begin, by the peer of the rules."""
    inbound: Mapping[_Peer, Traffic]

    def address(self, version: Version) -> Address | None:
        """Return the address that the first interface has of this IP version, or None."""
        one = self.interfaces[0]
        return one.address_ipv4 if version == 4 else one.address_ipv6


class Outside(NamedTuple):
    """Flows that may begin to or from a network in the internet."""

    network: IPv6Network
    """The peer of a rule; `GLOBAL` stands for the whole internet."""
    traffic: Traffic


def places(plan: VpcPlan) -> Sequence[Place]:
    """Return the places of a VPC, in the order of their first interfaces."""
    subnets = {each.id: each for each in plan.subnets}
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
    outbound, inbound = (
        {each.id: _by_peer(each, direction) for each in plan.groups}
        for direction in ("outbound", "inbound")
    )
    made = []
    for alike in found.values():
        ids = [each for each in dict.fromkeys(alike[0].group_ids) if each in outbound]
        made.append(
            Place(
                subnets[alike[0].subnet_id],
                tuple(ids),
                alike[0].is_balancer,
                tuple(alike),
                _together(outbound[each] for each in ids),
                _together(inbound[each] for each in ids),
            )
        )
    return made


def _by_peer(group: GroupPlan, direction: str) -> Mapping[_Peer, Traffic]:
    """Map each peer in the rules of a group to the flows that these rules allow with it."""
    found: defaultdict[_Peer, list[tuple[Kind, int, int]]] = defaultdict(list)
    for rule in group.rules:
        if rule.direction == direction:
            found[rule.peer] += _flat(_of_rule(rule))
    return {peer: _traffic(parts) for peer, parts in found.items()}


def _together(groups: Iterable[Mapping[_Peer, Traffic]]) -> Mapping[_Peer, Traffic]:
    found: dict[_Peer, Traffic] = {}
    for group in groups:
        for peer, traffic in group.items():
            found[peer] = found[peer] | traffic if peer in found else traffic
    return found


def between(source: Place, target: Place, version: Version) -> Traffic:
    """Return the flows that may begin from one interface of `source` to another of `target`.

    There are none if one of the places has no address of this IP version.
    """
    here, there = source.address(version), target.address(version)
    if here is None or there is None:
        return NOTHING
    if source.is_balancer and target.is_balancer:
        return EVERYTHING  # both are the namespace itself
    may = _allowed(source.outbound, there, target.interfaces[0].group_ids)
    return may & _allowed(target.inbound, here, source.interfaces[0].group_ids)


def to_internet(source: Place) -> Sequence[Outside]:
    """Return the flows to the internet that the security groups of a place allow to begin.

    Routes are ignored. The result is empty for load balancers, and for a place without a global
    IPv6 address.
    """
    return _outside(source, source.outbound)


def from_internet(target: Place) -> Sequence[Outside]:
    """Return the flows from the internet that a place's groups allow to begin, as `to_internet`."""
    return _outside(target, target.inbound)


def is_open(plan: VpcPlan, subnet: SubnetPlan) -> bool:
    """Return True if the routes of a subnet allow flows from the internet to begin."""
    targets = [each for to, each in subnet.routes if isinstance(to, IPv6Network)]
    is_there = "internet_gateway" in [existing_gateway(plan, each) for each in targets]
    return is_global(subnet) and is_there and not is_egress_only(plan, subnet)


def gateway_of(plan: VpcPlan, subnet: SubnetPlan) -> str | None:
    """Return the gateway through which a subnet reaches the internet, or None if it does not.

    That is the gateway of the route to ``::/0``, or else of the route with the shortest prefix.
    """
    routes = [
        (network, gateway)
        for network, target in subnet.routes
        if isinstance(network, IPv6Network) and (gateway := existing_gateway(plan, target))
    ]
    if not is_global(subnet) or not routes:
        return None
    return min(routes, key=lambda each: each[0].prefixlen)[1]


def _outside(place: Place, allowed: Mapping[_Peer, Traffic]) -> Sequence[Outside]:
    """Return the flows with the internet, one entry for each network that is a peer in rules."""
    if place.is_balancer or not is_global(place.subnet) or place.address(6) is None:
        return ()
    found: dict[IPv6Network, Traffic] = {}
    for peer, traffic in allowed.items():
        if peer is None:
            network = GLOBAL
        elif isinstance(peer, IPv6Network) and peer.overlaps(GLOBAL):
            network = peer if peer.subnet_of(GLOBAL) else GLOBAL
        else:
            continue
        found[network] = found.get(network, NOTHING) | traffic
    return [Outside(network, found[network]) for network in sorted(found, key=str)]


def _allowed(
    allowed: Mapping[_Peer, Traffic], peer: Address, peer_groups: Sequence[str]
) -> Traffic:
    """Return the allowed flows whose other end may be an interface with this address and groups."""
    return _traffic(
        part
        for named, traffic in allowed.items()
        if named is None or (named in peer_groups if isinstance(named, str) else peer in named)
        for part in _flat(traffic)
    )


def _of_rule(rule: RulePlan) -> Traffic:
    if rule.protocol == "all":
        return EVERYTHING
    first, last = _PORTS[rule.protocol]
    if rule.protocol != "icmp" and rule.port_from is not None:
        first = rule.port_from
        last = first if rule.port_to is None else rule.port_to
    return _traffic([(rule.protocol, first, last)])

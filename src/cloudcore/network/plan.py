"""What the network of a VPC is to be on a machine: values alone, made of rows.

Nothing here is text of an account. Networks and addresses are parsed, ports are integers, and the
ids are UUIDs that the platform gave.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Literal

Direction = Literal["inbound", "outbound"]
Protocol = Literal["all", "tcp", "udp", "icmp"]
"""``icmp`` is that of the version of the addresses; ports belong to ``tcp`` and ``udp``."""
Target = Literal["local", "internet_gateway", "egress_only_gateway"]


@dataclass(frozen=True, slots=True)
class RulePlan:
    """A rule of a security group: what it lets begin. Answers need no rule."""

    direction: Direction
    protocol: Protocol
    port_from: int | None = None
    """First port of the destination; None: every port."""
    port_to: int | None = None
    """Last port; None: `port_from` alone."""
    peer: IPv4Network | IPv6Network | str | None = None
    """The other end: a network, the id of a group of the VPC, or None: everyone."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A security group."""

    id: str
    rules: tuple[RulePlan, ...] = ()


@dataclass(frozen=True, slots=True)
class SubnetPlan:
    """A subnet, with the routes of its route table."""

    id: str
    cidr_ipv4: IPv4Network | None = None
    cidr_ipv6: IPv6Network | None = None
    routes: tuple[tuple[IPv4Network | IPv6Network, Target], ...] = ()
    """Destinations and where what goes there is sent. The longest prefix wins; what no route has
    goes nowhere. The ranges of the VPC are ``local``, whether they stand here or not."""


@dataclass(frozen=True, slots=True)
class InterfacePlan:
    """The addresses that an instance or a balancer has in a subnet."""

    id: str
    subnet_id: str
    address_ipv4: IPv4Address | None = None
    address_ipv6: IPv6Address | None = None
    group_ids: tuple[str, ...] = ()
    """What its groups let begin, taken together; without any, nothing."""
    is_balancer: bool = False
    """It is the VPC's namespace itself that has the addresses, as balancers run there."""


@dataclass(frozen=True, slots=True)
class VpcPlan:
    """A VPC."""

    id: str
    cidr_ipv4: IPv4Network | None = None
    cidr_ipv6: IPv6Network | None = None
    subnets: tuple[SubnetPlan, ...] = ()
    groups: tuple[GroupPlan, ...] = ()
    interfaces: tuple[InterfacePlan, ...] = ()
    internet_gateway: bool = False
    """One is attached."""
    egress_only_gateway: bool = False
    """There is one, which has its uplink from the internet gateway."""

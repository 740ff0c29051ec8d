"""The interface of network drivers, and the plan of a VPC that a driver carries out.

A plan contains no text from an account: networks and addresses are parsed, ports are integers, and
ids are UUIDs of the platform.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import Path
from typing import Literal, Protocol

Direction = Literal["inbound", "outbound"]
RuleProtocol = Literal["all", "tcp", "udp", "icmp"]
"""``icmp`` means ICMP or ICMPv6, by the IP version of the addresses; only ``tcp`` and ``udp`` have
ports."""
Target = Literal["local", "internet_gateway", "egress_only_gateway"]


@dataclass(frozen=True, slots=True)
class RulePlan:
    """A rule of a security group: flows that may begin. Replies need no rule."""

    direction: Direction
    protocol: RuleProtocol
    port_from: int | None = None
    """First port of the destination; None allows all ports."""
    port_to: int | None = None
    """Last port; None allows only `port_from`."""
    peer: IPv4Network | IPv6Network | str | None = None
    """The other end: a network, the id of a group of the VPC, or None for any address."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A security group, with its rules."""

    id: str
    rules: tuple[RulePlan, ...] = ()


@dataclass(frozen=True, slots=True)
class SubnetPlan:
    """A subnet, with the routes of its route table."""

    id: str
    cidr_ipv4: IPv4Network | None = None
    cidr_ipv6: IPv6Network | None = None
    routes: tuple[tuple[IPv4Network | IPv6Network, Target], ...] = ()
    """Pairs of destination and target. The longest prefix wins; packets without a route are
    dropped. The ranges of the VPC are always ``local``, whether or not they are listed."""


@dataclass(frozen=True, slots=True)
class InterfacePlan:
    """The addresses of an instance or a load balancer in a subnet."""

    id: str
    subnet_id: str
    address_ipv4: IPv4Address | None = None
    address_ipv6: IPv6Address | None = None
    group_ids: tuple[str, ...] = ()
    """The flows that any of these groups allows may begin; without groups, none may."""
    is_balancer: bool = False
    """The addresses belong to the VPC's namespace itself, in which load balancers run."""


@dataclass(frozen=True, slots=True)
class VpcPlan:
    """The plan of a VPC: all that a driver makes."""

    id: str
    cidr_ipv4: IPv4Network | None = None
    cidr_ipv6: IPv6Network | None = None
    subnets: tuple[SubnetPlan, ...] = ()
    groups: tuple[GroupPlan, ...] = ()
    interfaces: tuple[InterfacePlan, ...] = ()
    internet_gateway: bool = False
    """True if an internet gateway is attached."""
    egress_only_gateway: bool = False
    """True if there is one; its uplink is that of the internet gateway."""


class RulesRefused(Exception):
    """The kernel, or the program that checks on its behalf, rejects the rules of a VPC.

    The previous rules stay in force. The message is for the operator.
    """


class NetworkDriver(Protocol):
    """Makes the networks of VPCs on this machine.

    Each call is idempotent, and may be made by any process of the machine. Ids are UUIDs.
    """

    def check(self) -> None:
        """Check that this machine has everything that the driver needs.

        Raise `DriverUnusable` if something is missing; the message names it and says what to do.
        """

    def refuse(self, plan: VpcPlan) -> None:
        """Raise `RulesRefused` if a plan's rules would be rejected; change nothing."""

    async def apply(self, plan: VpcPlan) -> None:
        """Carry out a plan: its namespace, links, routes, and its rules in one transaction.

        Existing flows that the plan still allows are not interrupted.

        Raise `RulesRefused` if the rules are rejected; the previous rules stay.
        """

    async def attach(self, vpc_id: str, interface: InterfacePlan, netns: Path) -> None:
        """Move an interface into the network namespace of an instance, as its `eth0`.

        The last applied plan decides what may pass; before a plan with this interface, nothing may.
        """

    async def detach(self, vpc_id: str, interface_id: str) -> None:
        """Remove an interface."""

    async def add_vip(self, vpc_id: str, vip: str, interface_id: str | None = None) -> None:
        """Make a VPC answer at a VIP, an address of the operator's ranges for load balancers.

        The security groups of the interface `interface_id` decide which flows to the VIP may begin.
        If it is None, all TCP flows may.
        """

    async def remove_vip(self, vpc_id: str, vip: str) -> None:
        """Stop answering at a VIP."""

    def namespace_of(self, vpc_id: str) -> Path | None:
        """Return the network namespace of a VPC, or None if that is the machine's own."""

    def has(self, vpc_id: str) -> bool:
        """Return True if a VPC's plan was carried out, and the result still exists."""

    async def remove(self, vpc_id: str) -> None:
        """Remove everything of a VPC from this machine."""

    async def known(self) -> Sequence[str]:
        """Return the ids of this install's VPCs that have anything on this machine."""

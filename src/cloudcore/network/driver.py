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
"""``icmp`` is that of the version of the addresses; ports belong to ``tcp`` and ``udp``."""
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
    """The addresses of an instance or a load balancer in a subnet."""

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


class RulesRefused(Exception):
    """The kernel, or the program that checks on its behalf, rejects the rules of a VPC.

    The previous rules stay in force. The message is for the operator.
    """


class NetworkDriver(Protocol):
    """Carries out the networks of VPCs on this machine.

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

        Raise `RulesRefused` if the rules are rejected; the previous ones stay.
        """

    async def attach(self, vpc_id: str, interface: InterfacePlan, netns: Path) -> None:
        """Move an interface into the network namespace of an instance, as its `eth0`.

        The last applied plan decides what may pass; until a plan has the interface, nothing may.
        """

    async def detach(self, vpc_id: str, interface_id: str) -> None:
        """Remove an interface."""

    async def add_vip(self, vpc_id: str, vip: str, interface_id: str | None = None) -> None:
        """Make a VPC answer at a VIP, an address of the operator's ranges for load balancers.

        The security groups of the interface `interface_id` decide which flows may begin; without an
        interface, all TCP may.
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
        """Return the ids of this install's VPCs with anything on this machine."""

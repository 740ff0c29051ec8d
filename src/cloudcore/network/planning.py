"""Make the plan of a VPC from its rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final, TypeVar

from cloudcore.db.base import Connection
from cloudcore.errors import Unavailable
from cloudcore.network import rows
from cloudcore.network.driver import GroupPlan, InterfacePlan, RulePlan, SubnetPlan, VpcPlan
from cloudcore.network.resources import NetworkInterface, RouteTable, StoredRule, Subnet

T = TypeVar("T")
_ATTEMPTS: Final = 5


def unchanged(
    tx: Connection, account_id: str, vpc_id: str, read: Callable[[Connection, str, str], T]
) -> tuple[T, int] | None:
    """Return (the result of `read` for a VPC, the generation of the VPC), or None if it is gone.

    Each statement in `read` has a snapshot of its own. So `read` is called again if the generation
    has changed meanwhile. Raise `Unavailable` if it changes at each of five attempts.
    """
    for _ in range(_ATTEMPTS):
        before = rows.VPCS.find(tx, account_id, vpc_id)
        if before is None:
            return None
        with suppress(KeyError):  # a row refers to one that was not there when it was looked up
            result = read(tx, account_id, vpc_id)
            after = rows.VPCS.find(tx, account_id, vpc_id)
            if after is not None and after.generation == before.generation:
                return result, after.generation
    raise Unavailable("the VPC is being changed again and again", retry_after=1)


def plan_of(tx: Connection, account_id: str, vpc_id: str) -> VpcPlan | None:
    """Return the plan of a VPC's network from the rows in `tx`, or None if there is no such VPC.

    Lock the VPC before, or call this by `unchanged`.
    """
    found = rows.VPCS.find(tx, account_id, vpc_id)
    if found is None:
        return None
    of = (account_id, vpc_id)
    tables = {each.id: each for each in rows.of_vpc(tx, rows.ROUTE_TABLES, *of)}
    return VpcPlan(
        id=found.id,
        cidr_ipv4=IPv4Network(found.cidr_ipv4),
        cidr_ipv6=_ipv6(found.cidr_ipv6),
        subnets=tuple(_subnet(each, tables) for each in rows.of_vpc(tx, rows.SUBNETS, *of)),
        groups=tuple(
            GroupPlan(each.id, tuple(map(_rule, each.rules)))
            for each in rows.of_vpc(tx, rows.SECURITY_GROUPS, *of)
        ),
        interfaces=tuple(_interface(each) for each in rows.of_vpc(tx, rows.INTERFACES, *of)),
        internet_gateway=bool(rows.of_vpc(tx, rows.INTERNET_GATEWAYS, *of)),
        egress_only_gateway=bool(rows.of_vpc(tx, rows.EGRESS_ONLY_GATEWAYS, *of)),
    )


def _interface(of: NetworkInterface) -> InterfacePlan:
    return InterfacePlan(
        id=of.id,
        subnet_id=of.subnet.id,
        address_ipv4=None if of.address_ipv4 is None else IPv4Address(of.address_ipv4),
        address_ipv6=None if of.address_ipv6 is None else IPv6Address(of.address_ipv6),
        group_ids=tuple(each.id for each in of.security_groups),
        is_balancer=of.is_balancer,
    )


def _subnet(of: Subnet, tables: dict[str, RouteTable]) -> SubnetPlan:
    assert of.route_table is not None
    table = tables[of.route_table.id]
    return SubnetPlan(
        id=of.id,
        cidr_ipv4=None if of.cidr_ipv4 is None else IPv4Network(of.cidr_ipv4),
        cidr_ipv6=_ipv6(of.cidr_ipv6),
        routes=tuple((ip_network(each.destination), each.target) for each in table.routes),
    )


def _rule(of: StoredRule) -> RulePlan:
    peer: IPv4Network | IPv6Network | str | None = None
    if of.group is not None:
        peer = of.group.id
    elif of.network is not None:
        peer = ip_network(of.network)
    return RulePlan(of.direction, of.protocol, of.port_from, of.port_to, peer)


def _ipv6(text: str | None) -> IPv6Network | None:
    return None if text is None else IPv6Network(text)

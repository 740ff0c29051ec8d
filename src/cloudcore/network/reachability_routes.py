"""``GET /v1/vpcs/{vpc_id}/reachability``: which flows can begin in a VPC, and between whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final, NamedTuple, TypeVar

from litestar import get
from litestar.params import FromPath

from cloudcore.db.base import Connection
from cloudcore.network import rows
from cloudcore.network.driver import SubnetPlan, VpcPlan
from cloudcore.network.planning import plan_of, unchanged
from cloudcore.network.ranges import GLOBAL
from cloudcore.network.reachability import (
    EVERYTHING,
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
from cloudcore.network.resources import VPC
from cloudcore.network.vpcs import VPCS
from cloudcore.resources.resource import Record, Resource
from cloudcore.threads import DOCUMENTS
from cloudcore.web.app import Context
from cloudcore.web.bodies import ResourceRef
from cloudcore.wire import ResponseBody

R = TypeVar("R", bound=Record)
MOST_PLACES: Final = 24
"""The most places whose flows are shown: the number of flows grows with the square of this."""


class ReachableTraffic(ResponseBody):
    """The flows of a protocol that may begin."""

    protocol: str
    """`tcp`, `udp`, `icmp`, `other`, or `all` alone."""
    ports: str | None
    """Such as `80, 8000-8080`; null: every one."""


class ReachableOutside(ResponseBody):
    """The flows that may begin to, or from, some addresses of the internet."""

    network: str
    """`::/0` for all."""
    traffic: Sequence[ReachableTraffic]


class ReachableRoute(ResponseBody):
    """A route of a subnet."""

    destination: str
    target: str
    """`local`, `internet_gateway` or `egress_only_gateway`."""


class ReachableSubnet(ResponseBody):
    """A subnet, and its way to the internet."""

    subnet: ResourceRef
    cidr_ipv4: str | None
    cidr_ipv6: str | None
    route_table: ResourceRef
    routes: Sequence[ReachableRoute]
    gateway: str | None
    """By which it reaches the internet, over IPv6 alone: `internet_gateway` or
    `egress_only_gateway`; null: it does not reach it."""
    is_open: bool
    """The internet may begin what security groups allow, from where routes lead to the internet
    gateway."""


class ReachablePlace(ResponseBody):
    """Interfaces of a subnet that no rule distinguishes."""

    place: int
    """A number that is valid within this answer."""
    subnet: ResourceRef
    security_groups: Sequence[ResourceRef]
    is_balancer: bool
    interfaces: int
    """How many."""
    to_internet: Sequence[ReachableOutside]
    from_internet: Sequence[ReachableOutside]


class ReachableFlow(ResponseBody):
    """The flows that may begin from one place to another, or between two interfaces of a place."""

    source: int
    target: int
    ipv4: Sequence[ReachableTraffic]
    ipv6: Sequence[ReachableTraffic]


class VpcReachability(ResponseBody):
    """The flows that a VPC's groups and routes allow to begin, by the plan of its machine."""

    vpc: ResourceRef
    internet_gateway: ResourceRef | None
    egress_only_gateway: ResourceRef | None
    subnets: Sequence[ReachableSubnet]
    places: Sequence[ReachablePlace]
    flows: Sequence[ReachableFlow]
    """Only pairs with any flow are listed. The replies of a flow need no permission."""
    is_complete: bool
    """False if the VPC has more places: these are the first."""


class OneReachability(ResponseBody):
    """The body of an answer: a reachability."""

    reachability: VpcReachability


class _Found(NamedTuple):
    """A VPC's plan, and references to resources, of which the plan has only the ids."""

    plan: VpcPlan
    names: Mapping[str, ResourceRef]
    tables: Mapping[str, ResourceRef]
    """Route tables, by the ids of the subnets that use them."""
    gateways: tuple[ResourceRef | None, ResourceRef | None]
    """The internet gateway and the egress-only gateway."""


@get(VPC.path_of_one + "/reachability", opt={"action": VPC.action("get")})
async def get_reachability(vpc_id: FromPath[str], ctx: Context) -> OneReachability:
    """Return which flows can begin between the interfaces of a VPC, and with the internet.

    This is computed from the rows of the VPC, as are the rules on its machine. Interfaces that no
    rule distinguishes are one place; flows are shown for the first 24 places.
    """
    vpc = await VPCS.authorized(ctx, vpc_id)
    read = await ctx.database.read(unchanged, vpc.account_id, vpc.id, _find)
    if read is None or (found := read[0]) is None:
        raise rows.VPCS.missing()
    ref = _ref(VPC, vpc)
    told = await DOCUMENTS.run(vpc.account_id, _told, ref, found)
    return OneReachability(reachability=told)


def _find(tx: Connection, account_id: str, vpc_id: str) -> _Found | None:
    plan = plan_of(tx, account_id, vpc_id)
    if plan is None:
        return None
    of = (account_id, vpc_id)
    subnets = rows.of_vpc(tx, rows.SUBNETS, *of)
    groups = rows.of_vpc(tx, rows.SECURITY_GROUPS, *of)
    tables = {each.id: each for each in rows.of_vpc(tx, rows.ROUTE_TABLES, *of)}
    uplinks = rows.of_vpc(tx, rows.INTERNET_GATEWAYS, *of)
    egress = rows.of_vpc(tx, rows.EGRESS_ONLY_GATEWAYS, *of)
    return _Found(
        plan,
        {
            **{each.id: _ref(rows.SUBNETS.of, each) for each in subnets},
            **{each.id: _ref(rows.SECURITY_GROUPS.of, each) for each in groups},
        },
        {
            each.id: _ref(rows.ROUTE_TABLES.of, tables[each.route_table.id])
            for each in subnets
            if each.route_table is not None
        },
        (
            _ref(rows.INTERNET_GATEWAYS.of, uplinks[0]) if uplinks else None,
            _ref(rows.EGRESS_ONLY_GATEWAYS.of, egress[0]) if egress else None,
        ),
    )


def _ref(of: Resource[R], found: R) -> ResourceRef:
    return ResourceRef(id=found.id, crn=of.crn_of(found), name=getattr(found, of.key))


def _told(vpc: ResourceRef, found: _Found) -> VpcReachability:
    plan, every = found.plan, places(found.plan)
    told = every[:MOST_PLACES]
    return VpcReachability(
        vpc=vpc,
        internet_gateway=found.gateways[0],
        egress_only_gateway=found.gateways[1],
        subnets=[_subnet(found, each) for each in plan.subnets],
        places=[
            ReachablePlace(
                place=number,
                subnet=found.names[place.subnet.id],
                security_groups=[found.names[each] for each in place.group_ids],
                is_balancer=place.is_balancer,
                interfaces=len(place.interfaces),
                to_internet=_outside(
                    to_internet(place), has_way=gateway_of(plan, place.subnet) is not None
                ),
                from_internet=_outside(from_internet(place), has_way=is_open(plan, place.subnet)),
            )
            for number, place in enumerate(told)
        ],
        flows=_flows(told),
        is_complete=len(told) == len(every),
    )


def _subnet(found: _Found, subnet: SubnetPlan) -> ReachableSubnet:
    return ReachableSubnet(
        subnet=found.names[subnet.id],
        cidr_ipv4=None if subnet.cidr_ipv4 is None else str(subnet.cidr_ipv4),
        cidr_ipv6=None if subnet.cidr_ipv6 is None else str(subnet.cidr_ipv6),
        route_table=found.tables[subnet.id],
        routes=[ReachableRoute(destination=str(to), target=target) for to, target in subnet.routes],
        gateway=gateway_of(found.plan, subnet),
        is_open=is_open(found.plan, subnet),
    )


def _outside(outside: Sequence[Outside], *, has_way: bool) -> Sequence[ReachableOutside]:
    """Return the flows with the internet; none if the subnet has no way there (`has_way`)."""
    return [
        ReachableOutside(
            network="::/0" if each.network == GLOBAL else str(each.network),
            traffic=_traffic(each.traffic),
        )
        for each in (outside if has_way else ())
    ]


def _flows(told: Sequence[Place]) -> Sequence[ReachableFlow]:
    flows = []
    for (source, here), (target, there) in product(enumerate(told), repeat=2):
        if source == target and len(here.interfaces) == 1:
            continue
        ipv4, ipv6 = (between(here, there, version) for version in (4, 6))
        if ipv4 or ipv6:
            told_of = {"ipv4": _traffic(ipv4), "ipv6": _traffic(ipv6)}
            flows.append(ReachableFlow(source=source, target=target, **told_of))
    return flows


def _traffic(traffic: Traffic) -> Sequence[ReachableTraffic]:
    if traffic == EVERYTHING:
        return [ReachableTraffic(protocol="all", ports=None)]
    return [
        ReachableTraffic(protocol=kind, ports=_ports(kind, ranges))
        for kind, ranges in traffic.ranges
    ]


def _ports(kind: str, ranges: Sequence[tuple[int, int]]) -> str | None:
    if kind not in ("tcp", "udp") or ranges == ((0, 65_535),):
        return None
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ranges)

"""Describe VPCs and their parts: gateways, route tables, subnets, groups and interfaces.

Each record is both the body on ``/v1`` and the row.

VPC: a private network, which no other account reaches.
Internet gateway: lets flows begin from both sides, in and out of the VPC.
Egress-only gateway: lets flows begin only from within the VPC, by IPv6.
Subnet: a part of a VPC, from which interfaces get their addresses.
Route table: where packets go that leave a subnet.
Security group: which flows may begin at its interfaces.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Struct, field, structs

from cloudcore.errors import invalid_field
from cloudcore.network.driver import Direction, RuleProtocol
from cloudcore.network.driver import Target as RouteTarget
from cloudcore.network.ranges import RESERVED, subnet_range, vpc_ipv4, vpc_ipv6
from cloudcore.nodes.placed import Placed
from cloudcore.resources.resource import (
    Description,
    Filter,
    Record,
    Reference,
    ReferenceTarget,
    Resource,
    ResourceName,
    fixed,
    given,
    own,
)

Status = Literal["provisioning", "active", "degraded", "deleting"]


class Vpc(Placed, frozen=True, kw_only=True):
    """A network of the account's own, which is divided into subnets."""

    name: ResourceName
    description: Description = ""
    cidr_ipv4: Annotated[
        str, fixed("its private IPv4 network, such as 10.0.0.0/16; fixed", heading="IPV4")
    ]
    """Private, with a prefix of 16 to 28 bits. Two VPCs may have the same."""
    cidr_ipv6: Annotated[str | None, fixed("its IPv6 prefix; fixed", shows_null=True)] = None
    """A global prefix of 56 bits out of those that the operator has for VPCs, which is this one's
    alone; or one of unique local addresses (`fd00::/8`), which never leave the VPC."""
    tags: Annotated[dict[str, str], given("a tag of the VPC")] = field(default_factory=dict)
    node: Annotated[str, own(heading="NODE")] = ""
    status: Annotated[Status, own(heading="STATUS")] = "provisioning"
    """`degraded`: its machine could not bring about what it is to be."""
    generation: Annotated[int, own(hidden=True)] = 1
    """Counts the changes of the VPC and all its parts."""
    checked: Annotated[int, own(hidden=True)] = 0
    """The generation whose rules the driver has accepted."""
    applied: Annotated[int, own(hidden=True)] = 0
    """The generation that its machine has applied."""


def check_vpc(new: Vpc, old: Vpc | None, _now: int) -> Vpc:
    """Return a new VPC with its networks in canonical form; an existing one is unchanged.

    Raise `InvalidInput` if a VPC cannot have these networks.
    """
    if old is not None:
        return new
    ipv6 = new.cidr_ipv6
    return structs.replace(
        new, cidr_ipv4=vpc_ipv4(new.cidr_ipv4), cidr_ipv6=None if ipv6 is None else vpc_ipv6(ipv6)
    )


VPC: Final = Resource(
    record=Vpc,
    service="network",
    one="vpc",
    many="vpcs",
    words="VPC",
    quota=20,
    filters=(Filter("name"),),
    sample=lambda number: {"name": f"vpc-{number}", "cidr_ipv4": "10.0.0.0/16"},
)
"""The VPCs of accounts."""


class InternetGateway(Record, frozen=True, kw_only=True):
    """An uplink for the VPC that it is attached to; a VPC has one at most."""

    name: ResourceName
    description: Description = ""
    vpc: Annotated[Reference | None, own(heading="VPC", shows_null=True)] = None
    """What it is attached to; null: nothing."""
    tags: Annotated[dict[str, str], given("a tag of the internet gateway")] = field(
        default_factory=dict
    )


INTERNET_GATEWAY: Final = Resource(
    record=InternetGateway,
    service="network",
    one="internet_gateway",
    many="internet_gateways",
    more_actions=("AttachInternetGateway", "DetachInternetGateway"),
    quota=20,
    filters=(Filter("name"),),
    refers={"vpc": ReferenceTarget(VPC, VPC.action("get"))},
)
"""The internet gateways of accounts."""


class PartOfVpc(Record, frozen=True, kw_only=True):
    """Base of the resources that belong to a VPC."""

    name: ResourceName
    vpc: Annotated[Reference, fixed("VPC that it is of: name, id or CRN; fixed", heading="VPC")]
    description: Description = ""


class EgressOnlyGateway(PartOfVpc, frozen=True, kw_only=True):
    """A way out for the global IPv6 of subnets whose routes lead to it; no flow can come in.

    It has no address, translates no addresses, and uses the uplink of the VPC's internet gateway.
    """

    tags: Annotated[dict[str, str], given("a tag of the egress-only gateway")] = field(
        default_factory=dict
    )


EGRESS_ONLY_GATEWAY: Final = Resource(
    record=EgressOnlyGateway,
    service="network",
    one="egress_only_gateway",
    many="egress_only_gateways",
    words="egress-only gateway",
    quota=20,
    filters=(Filter("name"),),
    refers={"vpc": ReferenceTarget(VPC, VPC.action("get"))},
    # A VPC has one at most, and an internet gateway is attached to it.
    sample=lambda number: {
        "name": f"egress-only-gateway-{number}",
        "vpc": f"vpc-with-uplink-{number}",
    },
)
"""The egress-only gateways of accounts."""


MOST_ROUTES: Final = 50


class StoredRoute(Struct, frozen=True):
    """A route of a table, as it is stored."""

    destination: str
    target: RouteTarget
    """``local``, or the kind of a gateway. The table has its id: a VPC has one of each at most."""


class RouteTable(PartOfVpc, frozen=True, kw_only=True):
    """Where packets go that leave the subnets with this route table; the longest prefix wins."""

    is_main: Annotated[bool, own(heading="MAIN")] = False
    """It was made with its VPC, and is what subnets use that name none."""
    tags: Annotated[dict[str, str], given("a tag of the route table")] = field(default_factory=dict)
    routes: Annotated[tuple[StoredRoute, ...], own(hidden=True)] = ()
    """The networks of the VPC, which are `local`, come first."""
    internet_gateway: Annotated[Reference | None, own(hidden=True)] = None
    """The gateway that some of `routes` lead to."""
    egress_only_gateway: Annotated[Reference | None, own(hidden=True)] = None

    @property
    def gateways(self) -> tuple[Reference | None, Reference | None]:
        """Return the (internet, egress-only) gateways that routes lead to, each None if unused."""
        return self.internet_gateway, self.egress_only_gateway


ROUTE_TABLE: Final = Resource(
    record=RouteTable,
    service="network",
    one="route_table",
    many="route_tables",
    quota=100,
    filters=(Filter("name"), Filter("vpc_id")),
    refers={
        "vpc": ReferenceTarget(VPC, VPC.action("get")),
        "internet_gateway": ReferenceTarget(INTERNET_GATEWAY, INTERNET_GATEWAY.action("get")),
        "egress_only_gateway": ReferenceTarget(
            EGRESS_ONLY_GATEWAY, EGRESS_ONLY_GATEWAY.action("get")
        ),
    },
    sample=lambda number: {"name": f"route-table-{number}", "vpc": "vpc-0"},
)
"""The route tables of accounts."""


class Subnet(PartOfVpc, frozen=True, kw_only=True):
    """A part of a VPC, from which instances and load balancers get their addresses."""

    cidr_ipv4: Annotated[
        str | None,
        fixed("its network within that of the VPC; fixed", heading="IPV4", shows_null=True),
    ] = None
    """With a prefix of 16 to 28 bits. The first four addresses and the last one are not given
    out."""
    cidr_ipv6: Annotated[
        str | None,
        fixed(
            "its prefix of 64 bits within that of the VPC; fixed", heading="IPV6", shows_null=True
        ),
    ] = None
    route_table: Annotated[
        Reference | None,
        given("route table that it uses; by default the main one of its VPC", heading="ROUTES"),
    ] = None
    tags: Annotated[dict[str, str], given("a tag of the subnet")] = field(default_factory=dict)
    next_ipv4: Annotated[int, own(hidden=True)] = RESERVED
    """The first address that was never assigned, counted from the beginning of the network."""
    next_ipv6: Annotated[int, own(hidden=True)] = RESERVED


def check_subnet(new: Subnet, old: Subnet | None, _now: int) -> Subnet:
    """Return a new subnet with its networks in canonical form; an existing one is unchanged.

    Raise `InvalidInput` if a subnet cannot have these networks.
    """
    if old is not None:
        return new
    if new.cidr_ipv4 is None and new.cidr_ipv6 is None:
        raise invalid_field(
            "cidr_ipv4", "a subnet has a network of IPv4, of IPv6 or both", "missing"
        )
    given_networks = {"cidr_ipv4": new.cidr_ipv4, "cidr_ipv6": new.cidr_ipv6}
    return structs.replace(
        new, **{name: text and subnet_range(name, text) for name, text in given_networks.items()}
    )


SUBNET: Final = Resource(
    record=Subnet,
    service="network",
    one="subnet",
    many="subnets",
    quota=100,
    filters=(Filter("name"), Filter("vpc_id")),
    refers={
        "vpc": ReferenceTarget(VPC, VPC.action("get")),
        "route_table": ReferenceTarget(ROUTE_TABLE, ROUTE_TABLE.action("get")),
    },
    sample=lambda number: {
        "name": f"subnet-{number}",
        "vpc": "vpc-0",
        "cidr_ipv4": f"10.0.{number}.0/24",
    },
)
"""The subnets of accounts."""


MOST_RULES: Final = 50
MOST_GROUPS: Final = 5
"""The most security groups of an interface."""


class StoredRule(Struct, frozen=True, omit_defaults=True):
    """A rule of a group, as it is stored."""

    direction: Direction
    protocol: RuleProtocol
    port_from: int | None = None
    port_to: int | None = None
    network: str | None = None
    group: Reference | None = None
    """The group at the other end, if that is no network; names of groups never change."""


class SecurityGroup(PartOfVpc, frozen=True, kw_only=True):
    """The flows that may begin at the interfaces in it; their replies need no rule."""

    is_default: Annotated[bool, own(heading="DEFAULT")] = False
    """It was made with its VPC, and is what interfaces are in that name none."""
    tags: Annotated[dict[str, str], given("a tag of the security group")] = field(
        default_factory=dict
    )
    rules: Annotated[tuple[StoredRule, ...], own(hidden=True)] = ()


EVERYWHERE: Final = tuple(
    StoredRule("outbound", "all", network=each) for each in ("0.0.0.0/0", "::/0")
)
"""The rules of a group that is made without any: all outbound flows."""


def default_rules(group: Reference) -> tuple[StoredRule, ...]:
    """Return the rules of a VPC's default group: in from its own members, out to everywhere."""
    return (StoredRule("inbound", "all", group=group), *EVERYWHERE)


SECURITY_GROUP: Final = Resource(
    record=SecurityGroup,
    service="network",
    one="security_group",
    many="security_groups",
    quota=200,
    filters=(Filter("name"), Filter("vpc_id")),
    refers={"vpc": ReferenceTarget(VPC, VPC.action("get"))},
    sample=lambda number: {"name": f"security-group-{number}", "vpc": "vpc-0"},
)
"""The security groups of accounts."""


class NetworkInterface(Record, frozen=True, kw_only=True):
    """The addresses that an instance or a load balancer has in a subnet."""

    name: Annotated[str, own(heading="NAME")]
    """Made by the platform."""
    vpc: Annotated[Reference, own(heading="VPC")]
    subnet: Annotated[Reference, own(heading="SUBNET")]
    address_ipv4: Annotated[str | None, own(heading="IPV4", shows_null=True)] = None
    address_ipv6: Annotated[str | None, own(heading="IPV6", shows_null=True)] = None
    owner: Annotated[str, own(heading="OWNER", form="whole")]
    """CRN of what has it, and gives it back."""
    is_balancer: Annotated[bool, own(hidden=True)] = False
    security_groups: Annotated[tuple[Reference, ...], own(hidden=True)] = ()
    """Ids and names; both never change."""


NETWORK_INTERFACE: Final = Resource(
    record=NetworkInterface,
    service="network",
    one="network_interface",
    many="network_interfaces",
    methods=("list", "get"),
    methods_with_events=(),
    quota=10_000,
    filters=(Filter("name"), Filter("vpc_id"), Filter("subnet_id")),
    refers={
        "vpc": ReferenceTarget(VPC, VPC.action("get")),
        "subnet": ReferenceTarget(SUBNET, SUBNET.action("get")),
    },
)
"""The network interfaces of accounts."""

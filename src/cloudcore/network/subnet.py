"""What a subnet is: a part of a VPC, which interfaces have their addresses from."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import field, structs

from cloudcore.errors import InvalidInput
from cloudcore.network.ranges import RESERVED, subnet_range
from cloudcore.network.route_table import ROUTE_TABLE
from cloudcore.network.vpc import DESCRIPTION_WORDS, NAME_WORDS, VPC, Description, Name
from cloudcore.resources.record import Record, Reference, fixed, given, own
from cloudcore.resources.resource import Filter, Resource, Target


class Subnet(Record, frozen=True, kw_only=True):
    """A part of a VPC: instances and load balancers have their addresses from it."""

    name: Annotated[Name, fixed(NAME_WORDS, heading="NAME")]
    vpc: Annotated[Reference, fixed("VPC that it is of: name, id or CRN; fixed", heading="VPC")]
    description: Annotated[Description, given(DESCRIPTION_WORDS)] = ""
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
    """The first address that no interface had yet, counted from the beginning of the network."""
    next_ipv6: Annotated[int, own(hidden=True)] = RESERVED


def check(new: Subnet, old: Subnet | None, _now: int) -> Subnet:
    """Return a subnet with its networks as all are written.

    Raises:
        InvalidInput: a subnet cannot have them.

    """
    if old is not None:
        return new
    if new.cidr_ipv4 is None and new.cidr_ipv6 is None:
        words = "cidr_ipv4: a subnet has a network of IPv4, of IPv6 or both"
        raise InvalidInput(words, field="cidr_ipv4", reason="missing")
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
        "vpc": Target(VPC, VPC.action("get")),
        "route_table": Target(ROUTE_TABLE, ROUTE_TABLE.action("get")),
    },
    sample=lambda number: {
        "name": f"subnet-{number}",
        "vpc": "vpc-0",
        "cidr_ipv4": f"10.0.{number}.0/24",
    },
)
"""The subnets of accounts."""

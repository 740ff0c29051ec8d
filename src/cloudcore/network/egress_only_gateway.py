"""What an egress-only gateway is: a way out for IPv6, and none in."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import field

from cloudcore.network.vpc import DESCRIPTION_WORDS, NAME_WORDS, VPC, Description, Name
from cloudcore.resources.record import Record, Reference, fixed, given
from cloudcore.resources.resource import Filter, Resource, Target


class EgressOnlyGateway(Record, frozen=True, kw_only=True):
    """A way out for the global IPv6 of subnets whose routes lead to it, by which nothing comes in.

    It has no address, translates none, and has its uplink from the internet gateway of its VPC.
    """

    name: Annotated[Name, fixed(NAME_WORDS, heading="NAME")]
    vpc: Annotated[Reference, fixed("VPC that it is of: name, id or CRN; fixed", heading="VPC")]
    description: Annotated[Description, given(DESCRIPTION_WORDS)] = ""
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
    refers={"vpc": Target(VPC, VPC.action("get"))},
    # A VPC has one at most, and an internet gateway is attached to it.
    sample=lambda number: {
        "name": f"egress-only-gateway-{number}",
        "vpc": f"vpc-with-uplink-{number}",
    },
)
"""The egress-only gateways of accounts."""

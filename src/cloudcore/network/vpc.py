"""What a VPC is: a network of an account's own, which no other one reaches."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, field, structs

from cloudcore.network.ranges import vpc_ipv4, vpc_ipv6
from cloudcore.nodes.placed import Placed
from cloudcore.resources.record import fixed, given, own
from cloudcore.resources.resource import Filter, Resource

Status = Literal["provisioning", "active", "degraded", "deleting"]
Name = Annotated[str, Meta(min_length=1, max_length=63)]
Description = Annotated[str, Meta(max_length=1000)]
NAME_WORDS: Final = "1 to 63 of a-z 0-9 . _ -; fixed"
DESCRIPTION_WORDS: Final = 'for persons; "" takes it away'


class Vpc(Placed, frozen=True, kw_only=True):
    """A network of the account's own, which is divided into subnets."""

    name: Annotated[Name, fixed(NAME_WORDS, heading="NAME")]
    description: Annotated[Description, given(DESCRIPTION_WORDS)] = ""
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
    """Counts the changes of all that belongs to it."""
    checked: Annotated[int, own(hidden=True)] = 0
    """The generation whose rules were found to be good."""
    applied: Annotated[int, own(hidden=True)] = 0
    """The generation that its machine has brought about."""


def check(new: Vpc, old: Vpc | None, _now: int) -> Vpc:
    """Return a VPC with its networks as all are written.

    Raises:
        InvalidInput: a VPC cannot have them.

    """
    if old is not None:
        return new
    ipv6 = new.cidr_ipv6
    return structs.replace(
        new,
        cidr_ipv4=vpc_ipv4(new.cidr_ipv4),
        cidr_ipv6=None if ipv6 is None else vpc_ipv6(ipv6),
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

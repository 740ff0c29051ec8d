"""What an internet gateway is: what a VPC has its uplink from."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import field

from cloudcore.network.vpc import DESCRIPTION_WORDS, NAME_WORDS, VPC, Description, Name
from cloudcore.resources.record import Record, Reference, fixed, given, own
from cloudcore.resources.resource import Filter, Resource, Target


class InternetGateway(Record, frozen=True, kw_only=True):
    """What gives the VPC that it is attached to an uplink; a VPC has one at most."""

    name: Annotated[Name, fixed(NAME_WORDS, heading="NAME")]
    description: Annotated[Description, given(DESCRIPTION_WORDS)] = ""
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
    refers={"vpc": Target(VPC, VPC.action("get"))},
)
"""The internet gateways of accounts."""

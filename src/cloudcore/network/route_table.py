"""What a route table is: where the packets of subnets go that leave them."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Struct, field

from cloudcore.network.egress_only_gateway import EGRESS_ONLY_GATEWAY
from cloudcore.network.internet_gateway import INTERNET_GATEWAY
from cloudcore.network.plan import Target as RouteTarget
from cloudcore.network.vpc import DESCRIPTION_WORDS, NAME_WORDS, VPC, Description, Name
from cloudcore.resources.record import Record, Reference, fixed, given, own
from cloudcore.resources.resource import Filter, Resource, Target

MOST_ROUTES: Final = 50


class StoredRoute(Struct, frozen=True):
    """A route of a table, as it is stored."""

    destination: str
    target: RouteTarget
    """Which gateway, the table says: a VPC has one of each kind at most."""


class RouteTable(Record, frozen=True, kw_only=True):
    """Where packets go that leave the subnets which use it; the longest destination counts."""

    name: Annotated[Name, fixed(NAME_WORDS, heading="NAME")]
    vpc: Annotated[Reference, fixed("VPC that it is of: name, id or CRN; fixed", heading="VPC")]
    description: Annotated[Description, given(DESCRIPTION_WORDS)] = ""
    is_main: Annotated[bool, own(heading="MAIN")] = False
    """It was made with its VPC, and is what subnets use that name none."""
    tags: Annotated[dict[str, str], given("a tag of the route table")] = field(default_factory=dict)
    routes: Annotated[tuple[StoredRoute, ...], own(hidden=True)] = ()
    """The networks of the VPC first, which are `local`."""
    internet_gateway: Annotated[Reference | None, own(hidden=True)] = None
    """What some of `routes` lead to."""
    egress_only_gateway: Annotated[Reference | None, own(hidden=True)] = None

    @property
    def gateways(self) -> tuple[Reference | None, Reference | None]:
        """Return the internet gateway and the egress-only gateway that routes lead to."""
        return self.internet_gateway, self.egress_only_gateway


ROUTE_TABLE: Final = Resource(
    record=RouteTable,
    service="network",
    one="route_table",
    many="route_tables",
    quota=100,
    filters=(Filter("name"), Filter("vpc_id")),
    refers={
        "vpc": Target(VPC, VPC.action("get")),
        "internet_gateway": Target(INTERNET_GATEWAY, INTERNET_GATEWAY.action("get")),
        "egress_only_gateway": Target(EGRESS_ONLY_GATEWAY, EGRESS_ONLY_GATEWAY.action("get")),
    },
    sample=lambda number: {"name": f"route-table-{number}", "vpc": "vpc-0"},
)
"""The route tables of accounts."""

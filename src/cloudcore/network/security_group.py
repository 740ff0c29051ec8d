"""What a security group is: which flows may begin at the interfaces that are in it."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Struct, field

from cloudcore.network.plan import Direction, Protocol
from cloudcore.network.vpc import DESCRIPTION_WORDS, NAME_WORDS, VPC, Description, Name
from cloudcore.resources.record import Record, Reference, fixed, given, own
from cloudcore.resources.resource import Filter, Resource, Target

MOST_RULES: Final = 50
MOST_GROUPS: Final = 5
"""Groups of an interface."""


class StoredRule(Struct, frozen=True, omit_defaults=True):
    """A rule of a group, as it is stored."""

    direction: Direction
    protocol: Protocol
    port_from: int | None = None
    port_to: int | None = None
    network: str | None = None
    group: Reference | None = None
    """The other end, if it is no network; names never change."""


class SecurityGroup(Record, frozen=True, kw_only=True):
    """The flows that may begin at the interfaces in it; their answers need no rule."""

    name: Annotated[Name, fixed(NAME_WORDS, heading="NAME")]
    vpc: Annotated[Reference, fixed("VPC that it is of: name, id or CRN; fixed", heading="VPC")]
    description: Annotated[Description, given(DESCRIPTION_WORDS)] = ""
    is_default: Annotated[bool, own(heading="DEFAULT")] = False
    """It was made with its VPC, and is what interfaces are in that name none."""
    tags: Annotated[dict[str, str], given("a tag of the security group")] = field(
        default_factory=dict
    )
    rules: Annotated[tuple[StoredRule, ...], own(hidden=True)] = ()


EVERYWHERE: Final = tuple(
    StoredRule("outbound", "all", network=each) for each in ("0.0.0.0/0", "::/0")
)
"""The rules of a group that is made without any."""


def default_rules(group: Reference) -> tuple[StoredRule, ...]:
    """Return the rules of the default group of a VPC: its interfaces reach one another."""
    return (StoredRule("inbound", "all", group=group), *EVERYWHERE)


SECURITY_GROUP: Final = Resource(
    record=SecurityGroup,
    service="network",
    one="security_group",
    many="security_groups",
    quota=200,
    filters=(Filter("name"), Filter("vpc_id")),
    refers={"vpc": Target(VPC, VPC.action("get"))},
    sample=lambda number: {"name": f"security-group-{number}", "vpc": "vpc-0"},
)
"""The security groups of accounts."""

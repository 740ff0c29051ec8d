"""``/v1/security-groups``: which flows may begin. Replies need no rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, UnsetType

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, invalid_field
from cloudcore.network import rows
from cloudcore.network.driver import Direction, RuleProtocol
from cloudcore.network.needs import check_rules_of_part, with_checked_rules
from cloudcore.network.ranges import read_network
from cloudcore.network.resources import (
    EVERYWHERE,
    MOST_RULES,
    SECURITY_GROUP,
    SecurityGroup,
    StoredRule,
)
from cloudcore.network.rows import SECURITY_GROUPS as ROWS
from cloudcore.network.workflow import change_vpc, removal_of
from cloudcore.resources.bodies import Composite
from cloudcore.resources.methods import Methods
from cloudcore.resources.resource import Reference
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import RequestContext
from cloudcore.wire import RequestBody, ResponseBody

Port = Annotated[int, Meta(ge=1, le=65_535)]
Peer = Annotated[str, Meta(max_length=300)]


class GivenRule(RequestBody):
    """Flows that may begin."""

    direction: Direction
    protocol: RuleProtocol
    """`icmp` means ICMP or ICMPv6, by the IP version of the addresses."""
    port_from: Port | None = None
    """First port of the destination, with `tcp` and `udp`; by default every port."""
    port_to: Port | None = None
    """Last port; by default `port_from` alone."""
    source: Peer | None = None
    """Of an inbound rule: a network such as `0.0.0.0/0`, or a security group of the VPC: name, id
    or CRN."""
    destination: Peer | None = None
    """The same of an outbound rule."""


class Rule(ResponseBody):
    """Flows that may begin."""

    direction: Direction
    protocol: RuleProtocol
    port_from: int | UnsetType = UNSET
    port_to: int | UnsetType = UNSET
    source: str | UnsetType = UNSET
    """Of an inbound rule: a network, or the CRN of a security group."""
    destination: str | UnsetType = UNSET
    """The same of an outbound rule."""


async def _resolve(ctx: RequestContext, given: Sequence[GivenRule] | None) -> Mapping[str, object]:
    """Return the rules of a request for the record; by default, all outbound flows are allowed."""
    if given is None:
        return {"rules": EVERYWHERE}
    if len(given) > MOST_RULES:
        raise invalid_field("rules", f"a security group has at most {MOST_RULES}", "out_of_range")
    found = [await _stored(ctx, f"rules[{number}]", each) for number, each in enumerate(given)]
    return {"rules": tuple(found)}


async def _stored(ctx: RequestContext, field: str, of: GivenRule) -> StoredRule:
    ports = of.port_from, of.port_to
    if of.protocol not in ("tcp", "udp") and ports != (None, None):
        raise invalid_field(f"{field}.port_from", "only tcp and udp have ports", "unexpected")
    if of.port_from is None and of.port_to is not None:
        raise invalid_field(f"{field}.port_from", "is missing", "missing")
    port_to = of.port_from if of.port_to is None else of.port_to
    if of.port_from is not None and port_to is not None and port_to < of.port_from:
        raise invalid_field(f"{field}.port_to", "is below port_from", "out_of_range")
    wanted, other = ("source", "destination")[:: 1 if of.direction == "inbound" else -1]
    if getattr(of, other) is not None:
        raise invalid_field(
            f"{field}.{other}", f"an {of.direction} rule has a {wanted}", "unexpected"
        )
    field, peer = f"{field}.{wanted}", getattr(of, wanted)
    if peer is None:
        words = "a network, such as 0.0.0.0/0 for all of IPv4, or a security group"
        raise invalid_field(field, words, "missing")
    if "/" in peer and not peer.startswith("crn:"):
        network = str(read_network(field, peer))
        return StoredRule(of.direction, of.protocol, of.port_from, port_to, network)
    right = ctx.right_to(SECURITY_GROUP.action("get"))
    where = (account_of(ctx), ctx.settings.region, field, peer, right)
    found = await ctx.database.read(ROWS.resolve, *where)
    group = Reference(found.id, found.name)
    return StoredRule(of.direction, of.protocol, of.port_from, port_to, group=group)


def _before_save(tx: Connection, new: SecurityGroup, old: SecurityGroup | None) -> SecurityGroup:
    if old is not None and new.rules == old.rules:
        return new
    for group_id in {each.group.id for each in new.rules if each.group is not None}:
        found = ROWS.hold(tx, new.account_id, group_id)
        if found is None:
            raise ROWS.missing()
        if found.vpc.id != new.vpc.id:
            raise invalid_field("rules", f"{found.name} is a group of another VPC", "other_vpc")
    change_vpc(tx, new.account_id, new.vpc.id, new.updated_at)
    return new


def _before_delete(tx: Connection, found: SecurityGroup) -> None:
    if found.is_default:
        raise Conflict("the default security group of a VPC goes with it", reason="is_default")
    user = rows.member(tx, found)
    if user is not None:
        raise Conflict(f"{user} is in it; change that first", reason="in_use", used_by=user)
    for other in rows.of_vpc(tx, ROWS, found.account_id, found.vpc.id):
        if other.id != found.id and any(
            each.group is not None and each.group.id == found.id for each in other.rules
        ):
            words = f"a rule of the security group {other.name} names it; change that first"
            raise Conflict(words, reason="is_referred_to", security_group=other.name)


def _show(found: SecurityGroup) -> Sequence[Rule]:
    return [_shown(found, each) for each in found.rules]


def _shown(of: SecurityGroup, rule: StoredRule) -> Rule:
    peer: str | UnsetType = UNSET if rule.network is None else rule.network
    if rule.group is not None:
        peer = SECURITY_GROUP.crn(of.region, of.account_id, rule.group.name)
    return Rule(
        direction=rule.direction,
        protocol=rule.protocol,
        port_from=UNSET if rule.port_from is None else rule.port_from,
        port_to=UNSET if rule.port_to is None else rule.port_to,
        source=peer if rule.direction == "inbound" else UNSET,
        destination=peer if rule.direction == "outbound" else UNSET,
    )


RULES: Final[Composite[SecurityGroup, Any]] = Composite(
    name="rules",
    words="The flows that may begin; by default all that are outbound.",
    shown=Sequence[Rule],
    given=list[GivenRule],
    resolve=_resolve,
    show=_show,
)
SECURITY_GROUPS: Final = Methods(
    ROWS,
    before_save=_before_save,
    before_delete=_before_delete,
    removal=removal_of(ROWS),
    after=check_rules_of_part,
    around=with_checked_rules,
    composites=(RULES,),
    targets={"vpc": rows.VPCS},
    statuses={"delete": (409,)},
    docs={
        "delete": "Delete a security group.\n\nIt is refused (409) while something is in it or a"
        " rule of another one names it; the default one goes with its VPC.",
    },
)

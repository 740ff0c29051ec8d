"""``/v1/internet-gateways`` and ``/v1/egress-only-gateways``: the ways out of a VPC."""

from __future__ import annotations

from typing import Final

from litestar.params import FromPath, JSONBody
from msgspec import structs

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict
from cloudcore.network import rows
from cloudcore.network.needs import (
    NetworkNeeds,
    check_rules,
    check_rules_of_part,
    with_checked_rules,
)
from cloudcore.network.resources import VPC, EgressOnlyGateway, InternetGateway, Vpc
from cloudcore.network.rows import INTERNET_GATEWAYS as ROWS
from cloudcore.network.workflow import change_vpc, removal_of
from cloudcore.resources.methods import Methods, Referrer
from cloudcore.resources.resource import Reference
from cloudcore.resources.routes import custom_method
from cloudcore.web.app import Context, Needs
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import Reply
from cloudcore.wire import RequestBody, ResponseBody


class AttachInternetGateway(RequestBody):
    """The VPC that gets an uplink."""

    vpc: str
    """The name, id or CRN of the VPC."""


def _before_delete(_tx: Connection, found: InternetGateway) -> None:
    if found.vpc is not None:
        words = f"it is attached to the VPC {found.vpc.name}; detach it first"
        raise Conflict(words, reason="attached", vpc=found.vpc.name)


INTERNET_GATEWAYS: Final = Methods(
    ROWS,
    before_delete=_before_delete,
    statuses={"delete": (409,)},
    docs={"delete": "Delete an internet gateway.\n\nIt is refused (409) while it is attached."},
)


def _uplink(
    tx: Connection, new: EgressOnlyGateway, old: EgressOnlyGateway | None
) -> EgressOnlyGateway:
    if old is not None:  # only its description or tags have changed
        return new
    of = (new.account_id, new.vpc.id)
    change_vpc(tx, *of, new.created_at)
    if not rows.of_vpc(tx, ROWS, *of):
        words = f"attach an internet gateway to the VPC {new.vpc.name} first, for the uplink"
        raise Conflict(words, reason="no_internet_gateway", vpc=new.vpc.name)
    for other in rows.of_vpc(tx, rows.EGRESS_ONLY_GATEWAYS, *of):
        words = f"the VPC has the egress-only gateway {other.name}, and one is the most"
        raise Conflict(words, reason="has_one", egress_only_gateway=other.name)
    return new


EGRESS_ONLY_GATEWAYS: Final = Methods(
    rows.EGRESS_ONLY_GATEWAYS,
    before_save=_uplink,
    removal=removal_of(rows.EGRESS_ONLY_GATEWAYS),
    after=check_rules_of_part,
    around=with_checked_rules,
    targets={"vpc": rows.VPCS},
    referrers=(Referrer(rows.ROUTE_TABLES, "egress_only_gateway"),),
    docs={
        "create": "Create an egress-only gateway, of which a VPC has one at most.\n\nThe VPC must"
        " have an internet gateway attached (409). What the route tables send to it gets out, with"
        " its answers back; nothing can begin from outside, whatever security groups allow.",
        "delete": "Delete an egress-only gateway.\n\nIt is refused (409) while a route leads"
        " to it.",
    },
)


@custom_method(INTERNET_GATEWAYS, "attach", "network:AttachInternetGateway", statuses=(409,))
async def attach_internet_gateway(
    internet_gateway_id: FromPath[str],
    data: JSONBody[AttachInternetGateway],
    ctx: Context,
    needs: Needs[NetworkNeeds],
) -> Reply[ResponseBody]:
    """Attach an internet gateway to a VPC, which has one at most."""
    found = await INTERNET_GATEWAYS.authorized(ctx, internet_gateway_id)
    where = (account_of(ctx), ctx.settings.region, "vpc", data.vpc)
    vpc = await ctx.database.read(rows.VPCS.resolve, *where, ctx.right_to(VPC.action("get")))
    now = ctx.clock()
    wrap, details = INTERNET_GATEWAYS.at(now), INTERNET_GATEWAYS.details_if_changed(now)
    return await with_checked_rules(
        lambda checking: ctx.commit(attach, found, vpc, now, checking, wrap=wrap, details=details),
        needs,
    )


@custom_method(INTERNET_GATEWAYS, "detach", "network:DetachInternetGateway", statuses=(409,))
async def detach_internet_gateway(
    internet_gateway_id: FromPath[str], ctx: Context, needs: Needs[NetworkNeeds]
) -> Reply[ResponseBody]:
    """Detach an internet gateway from its VPC.

    It is refused (409) while the VPC has an egress-only gateway, or a route leads to it.
    """
    found, now = await INTERNET_GATEWAYS.authorized(ctx, internet_gateway_id), ctx.clock()
    wrap, details = INTERNET_GATEWAYS.at(now), INTERNET_GATEWAYS.details_if_changed(now)
    return await with_checked_rules(
        lambda checking: ctx.commit(detach, found, now, checking, wrap=wrap, details=details), needs
    )


def attach(
    tx: Connection, found: InternetGateway, vpc: Vpc, now: int, needs: NetworkNeeds
) -> InternetGateway:
    """Attach an internet gateway to a VPC; return the gateway.

    Raise `NotFound` if the gateway or the VPC was deleted meanwhile; `Conflict` if the gateway is
    attached to another VPC, or the VPC has another gateway.
    """
    change_vpc(tx, vpc.account_id, vpc.id, now)  # first: a new egress-only gateway locks this one
    old = ROWS.lock(tx, found.account_id, found.id)
    if old.vpc is not None and old.vpc.id == vpc.id:
        return old
    if old.vpc is not None:
        words = f"it is attached to the VPC {old.vpc.name}; detach it first"
        raise Conflict(words, reason="attached", vpc=old.vpc.name)
    if rows.VPCS.hold(tx, vpc.account_id, vpc.id) is None:
        raise rows.VPCS.missing()
    for other in rows.of_vpc(tx, ROWS, vpc.account_id, vpc.id):
        words = f"the VPC has the internet gateway {other.name}, and one is the most"
        raise Conflict(words, reason="has_one", internet_gateway=other.name)
    new = structs.replace(old, vpc=Reference(vpc.id, vpc.name), updated_at=now)
    ROWS.save(tx, new)
    check_rules(tx, vpc.account_id, vpc.id, needs)
    return new


def detach(
    tx: Connection, found: InternetGateway, now: int, needs: NetworkNeeds
) -> InternetGateway:
    """Detach an internet gateway from its VPC; return the gateway.

    Do nothing if it is not attached. Raise `NotFound` if the gateway was deleted meanwhile;
    `Conflict` if the VPC has an egress-only gateway, or a route leads to the gateway.
    """
    if found.vpc is not None:
        change_vpc(tx, found.account_id, found.vpc.id, now)  # first, as in `attach`
    old = ROWS.lock(tx, found.account_id, found.id)
    if old.vpc is None:
        return old
    of = (old.account_id, old.vpc.id)
    if old.vpc != found.vpc:
        change_vpc(tx, *of, now)
    for other in rows.of_vpc(tx, rows.EGRESS_ONLY_GATEWAYS, *of):
        words = f"the egress-only gateway {other.name} has its uplink from it; delete that first"
        raise Conflict(words, reason="in_use", egress_only_gateway=other.name)
    table = rows.ROUTE_TABLES.name_of_one_referring(tx, "internet_gateway", of[0], old.id)
    if table is not None:
        words = f"a route of the route table {table} leads to it; change that first"
        raise Conflict(words, reason="is_referred_to", route_table=table)
    new = ROWS.save(tx, structs.replace(old, vpc=None, updated_at=now))
    check_rules(tx, *of, needs)
    return new

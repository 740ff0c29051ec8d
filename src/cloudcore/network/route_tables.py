"""``/v1/route-tables``: routes to gateways. The networks of the VPC itself are always `local`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from typing import Annotated, Any, Final

from msgspec import Meta, structs

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, NotFound, invalid_field
from cloudcore.network import rows
from cloudcore.network.needs import check_rules_of_part, with_checked_rules
from cloudcore.network.ranges import lies_in, read_network
from cloudcore.network.resources import MOST_ROUTES, RouteTable, StoredRoute
from cloudcore.network.rows import ROUTE_TABLES as ROWS
from cloudcore.network.workflow import change_vpc
from cloudcore.resources.bodies import Composite
from cloudcore.resources.methods import Methods, Referrer
from cloudcore.resources.resource import Reference
from cloudcore.resources.rows import Rows
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import RequestContext
from cloudcore.wire import RequestBody, ResponseBody

_GATEWAYS: Final[Sequence[Rows[Any]]] = (rows.INTERNET_GATEWAYS, rows.EGRESS_ONLY_GATEWAYS)
_TARGETS: Final = "`local`, or an internet gateway or an egress-only gateway: name, id or CRN"


class GivenRoute(RequestBody):
    """Where packets to a network go."""

    destination: Annotated[str, Meta(max_length=60)]
    """A network, such as `::/0` for all of IPv6."""
    target: Annotated[str, Meta(max_length=300)]
    """`local`, or an internet gateway or an egress-only gateway: name, id or CRN."""


class Route(ResponseBody):
    """Where packets to a network go."""

    destination: str
    target: str
    """`local`: within the VPC. Else the CRN of an internet gateway or an egress-only gateway."""


async def _resolve(ctx: RequestContext, given: Sequence[GivenRoute] | None) -> Mapping[str, object]:
    """Return the routes of a request for the record, and the gateways that they lead to."""
    if given is not None and len(given) > MOST_ROUTES:
        raise invalid_field("routes", f"a table has at most {MOST_ROUTES}", "out_of_range")
    routes: dict[str, StoredRoute] = {}
    gateways: dict[str, Reference] = {}
    for number, each in enumerate(given or ()):
        field = f"routes[{number}]"
        destination = str(read_network(f"{field}.destination", each.destination))
        if destination in routes:
            raise invalid_field(f"{field}.destination", f"{destination} is there twice", "repeated")
        if each.target == "local":
            routes[destination] = StoredRoute(destination, "local")
            continue
        kind, found = await _gateway(ctx, f"{field}.target", each.target)
        if kind is rows.EGRESS_ONLY_GATEWAYS and ":" not in destination:
            raise invalid_field(
                f"{field}.target", "only IPv6 leaves by such a gateway", "wrong_version"
            )
        if gateways.setdefault(kind.of.one, found) != found:
            words = f"a VPC has one {kind.of.noun} at most"
            raise invalid_field(f"{field}.target", words, "other_vpc")
        is_internet = kind is rows.INTERNET_GATEWAYS
        target = StoredRoute(
            destination, "internet_gateway" if is_internet else "egress_only_gateway"
        )
        routes[destination] = target
    return {
        "routes": tuple(routes.values()),
        **{each.of.one: gateways.get(each.of.one) for each in _GATEWAYS},
    }


async def _gateway(ctx: RequestContext, field: str, reference: str) -> tuple[Rows[Any], Reference]:
    """Return the gateway that `reference` refers to, and the rows of its kind.

    Raise `InvalidInput` if the reference is malformed or names two gateways, `NotFound` if there is
    no such gateway.
    """
    account_id, region = account_of(ctx), ctx.settings.region
    found = []
    is_crn = reference.startswith("crn:")
    kinds = [each for each in _GATEWAYS if not is_crn or f":{each.of.type}/" in reference]
    if not kinds:
        raise invalid_field(field, _TARGETS, "malformed_crn")
    for each in kinds:
        try:
            meant = await ctx.database.read(
                each.resolve, account_id, region, field, reference, None
            )
        except NotFound:
            continue
        found.append((each, meant))
    for each in kinds if not found else ():
        ctx.right_to(each.of.action("get"))(each.of.crn(region, account_id, "*"))
    for each, meant in found:
        ctx.right_to(each.of.action("get"))(each.of.crn_of(meant))
    if not found:
        raise NotFound(f"{field}: there is no such gateway", field=field)
    if len(found) > 1:
        words = "an internet gateway and an egress-only gateway have this name; write the CRN"
        raise invalid_field(field, words, "ambiguous")
    ((kind, meant),) = found
    return kind, Reference(meant.id, meant.name)


def _with_local(routes: Sequence[StoredRoute], local: Sequence[str]) -> tuple[StoredRoute, ...]:
    """Return the routes, preceded by those to the VPC's own networks, `local`.

    Raise `InvalidInput` if a route to a gateway lies within `local`, or a ``local`` route has
    another destination.
    """
    given = []
    for each in routes:
        is_own = any(lies_in(ip_network(each.destination), own) for own in local)
        if each.target == "local" and each.destination not in local:
            words = f"{each.destination} is no network of the VPC, so it is not local"
            raise invalid_field("routes", words, "out_of_range")
        if each.target != "local" and is_own:
            words = f"{each.destination} is within the VPC, and always local"
            raise invalid_field("routes", words, "out_of_range")
        if each.target != "local":
            given.append(each)
    return (*(StoredRoute(each, "local") for each in local), *given)


def _check(new: RouteTable, old: RouteTable | None, _now: int) -> RouteTable:
    if old is None:
        return new
    local = [each.destination for each in old.routes if each.target == "local"]
    return structs.replace(new, routes=_with_local(new.routes, local))


def _before_save(tx: Connection, new: RouteTable, old: RouteTable | None) -> RouteTable:
    if old is not None and (new.routes, new.gateways) == (old.routes, old.gateways):
        return new
    change_vpc(tx, new.account_id, new.vpc.id, new.updated_at)
    if old is None:
        vpc = rows.VPCS.get(tx, new.account_id, new.region, new.vpc.id)
        local = [each for each in (vpc.cidr_ipv4, vpc.cidr_ipv6) if each is not None]
        new = structs.replace(new, routes=_with_local(new.routes, local))
    for kind, meant in zip(_GATEWAYS, new.gateways, strict=True):
        found = None if meant is None else kind.find(tx, new.account_id, meant.id)
        if found is None or (found.vpc is not None and found.vpc.id == new.vpc.id):
            continue
        if kind is rows.INTERNET_GATEWAYS and found.vpc is None:
            words = f"attach the internet gateway {found.name} to the VPC first"
            raise Conflict(words, reason="not_attached", internet_gateway=found.name)
        raise invalid_field(
            "routes", f"the {kind.of.noun} {found.name} is of another VPC", "other_vpc"
        )
    return new


def _before_delete(_tx: Connection, found: RouteTable) -> None:
    if found.is_main:
        raise Conflict("the main route table of a VPC goes with it", reason="is_main")


def _show(found: RouteTable) -> Sequence[Route]:
    crns = {"local": "local"}
    for kind, meant in zip(_GATEWAYS, found.gateways, strict=True):
        if meant is not None:
            crns[kind.of.one] = kind.of.crn(found.region, found.account_id, meant.name)
    return [Route(destination=each.destination, target=crns[each.target]) for each in found.routes]


ROUTES: Final[Composite[RouteTable, Any]] = Composite(
    name="routes",
    words="Where packets go; the longest prefix wins. The networks of the VPC are `local`.",
    shown=Sequence[Route],
    given=list[GivenRoute],
    resolve=_resolve,
    show=_show,
)
ROUTE_TABLES: Final = Methods(
    ROWS,
    check=_check,
    before_save=_before_save,
    before_delete=_before_delete,
    after=check_rules_of_part,
    around=with_checked_rules,
    composites=(ROUTES,),
    targets={
        "vpc": rows.VPCS,
        "internet_gateway": rows.INTERNET_GATEWAYS,
        "egress_only_gateway": rows.EGRESS_ONLY_GATEWAYS,
    },
    referrers=(Referrer(rows.SUBNETS, "route_table"),),
    statuses={"update": (409,)},
    docs={
        "delete": "Delete a route table.\n\nIt is refused (409) while a subnet uses it, and the"
        " main one goes with its VPC.",
    },
)

"""``/v1/load-balancers``: create, change and delete load balancers, and show their metrics.

The other routes are the standard methods of `LOAD_BALANCERS`.
"""

from __future__ import annotations

from typing import Any, Final

from litestar import Response, get
from litestar import delete as delete_route
from litestar.params import FromPath, JSONBody
from msgspec import structs

from cloudcore.loadbalancer import balancers, bodies, metrics
from cloudcore.loadbalancer.balancers import LOAD_BALANCERS, check_vip
from cloudcore.loadbalancer.bodies import CreateLoadBalancer, UpdateLoadBalancer
from cloudcore.loadbalancer.load_balancer import LOAD_BALANCER, Named
from cloudcore.loadbalancer.needs import LoadBalancerNeeds
from cloudcore.resource_names import check_tags
from cloudcore.resources.resource import DELETING
from cloudcore.web.app import Context, Needs
from cloudcore.web.context import Reply
from cloudcore.wire import ResponseBody, changes_of


@LOAD_BALANCERS.answers.creates(
    LOAD_BALANCER.path, LOAD_BALANCER.action("create"), status=202, statuses=(404, 409)
)
async def create_load_balancer(
    data: JSONBody[CreateLoadBalancer], ctx: Context, needs: Needs[LoadBalancerNeeds]
) -> Reply[ResponseBody]:
    """Create a load balancer, which is active some seconds later. An account has at most 50.

    The caller needs `network:GetSubnet`, and the right to get the security groups, certificates and
    instance pools that the request names.
    """
    vip = "" if data.vip is None else bodies.address_of("vip", data.vip)
    given = _given({**structs.asdict(data), "vip": vip})
    named = {name: given.pop(name) for name in _NAMED}
    subnet = given.pop("subnet")
    bodies.check_match(named["listeners"], named["backends"])
    new = LOAD_BALANCERS.new(ctx, given)
    check_vip(vip, needs.parts.vips)
    return await ctx.commit(
        balancers.create,
        new,
        subnet,
        named,
        needs.parts,
        ctx.right_to,
        wrap=LOAD_BALANCERS.one,
        location=LOAD_BALANCERS.location,
    )


@LOAD_BALANCERS.answers.updates(
    LOAD_BALANCER.path_of_one, LOAD_BALANCER.action("update"), statuses=(409,)
)
async def update_load_balancer(
    load_balancer_id: FromPath[str],
    data: JSONBody[UpdateLoadBalancer],
    ctx: Context,
    needs: Needs[LoadBalancerNeeds],
) -> Reply[ResponseBody]:
    """Change a load balancer; its proxies apply the change without dropping a connection.

    It is refused (409) while it is being deleted.
    """
    found = await LOAD_BALANCERS.authorized(ctx, load_balancer_id)
    changes, now = _given(changes_of(data, CreateLoadBalancer)), ctx.clock()
    return await ctx.commit(
        balancers.update,
        found,
        changes,
        needs.parts,
        ctx.right_to,
        now,
        wrap=LOAD_BALANCERS.one,
        details=LOAD_BALANCERS.details_if_changed(now),
    )


@delete_route(
    LOAD_BALANCER.path_of_one, status_code=202, opt={"action": LOAD_BALANCER.action("delete")}
)
async def delete_load_balancer(load_balancer_id: FromPath[str], ctx: Context) -> Response[bytes]:
    """Tear a load balancer down; it is `deleting` until all of it is gone, and then 404."""
    found = await LOAD_BALANCERS.authorized(ctx, load_balancer_id)
    if found.status != DELETING:
        await ctx.database.write(balancers.delete, found, ctx.clock())
    return Response(b"", status_code=202, media_type="application/json")


@get(LOAD_BALANCER.path_of_one + "/metrics", opt={"action": "loadbalancer:GetLoadBalancerMetrics"})
async def get_load_balancer_metrics(
    load_balancer_id: FromPath[str], ctx: Context
) -> metrics.OneMetrics:
    """Return what a load balancer has served since it was created; some seconds behind."""
    found = await LOAD_BALANCERS.authorized(ctx, load_balancer_id)
    total = await ctx.database.read(metrics.served, found.account_id, found.id)
    return metrics.shown(total)


_NAMED: Final = ("listeners", "backends", "security_groups")


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the record that a request sets; references are not yet resolved."""
    if "tags" in values:
        check_tags(values["tags"])
    if "listeners" in values:
        values["listeners"] = bodies.read_listeners(values["listeners"])
    if "backends" in values:
        values["backends"] = bodies.read_backends(values["backends"])
    if "security_groups" in values:
        asked = tuple(Named(each) for each in values["security_groups"])
        values["security_groups"] = asked
    return values

"""``/v1/instance-pools``: pools, their instances, and the output of instances."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Final

from litestar import Response, delete, get
from litestar.params import FromPath, JSONBody
from msgspec import Meta, Struct

from cloudcore.compute import pools, rows
from cloudcore.compute.driver import MOST_LOG_BYTES
from cloudcore.compute.instance_pool import INSTANCE, INSTANCE_POOL, Instance, InstancePool
from cloudcore.compute.needs import ComputeNeeds
from cloudcore.compute.pools import INSTANCE_POOLS
from cloudcore.compute.rows import INSTANCE_ROWS
from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput, NotFound, Unavailable
from cloudcore.resources.bodies import Bodies
from cloudcore.resources.resource import DELETING
from cloudcore.web.app import Context, Needs
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import Reply
from cloudcore.web.pagination import PageQuery, read_page
from cloudcore.wire import RequestBody, ResponseBody

_ANSWERS: Final = Bodies(INSTANCE).answers
if TYPE_CHECKING:
    CreateInstancePool = RequestBody
    UpdateInstancePool = RequestBody
else:
    CreateInstancePool = INSTANCE_POOLS.bodies.create
    UpdateInstancePool = INSTANCE_POOLS.bodies.update

_INSTANCES: Final = INSTANCE_POOL.path_of_one + "/instances"
_UNTRUSTED: Final = {
    # A program wrote it: a browser that shows it must not take it for a page of this site.
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class LogsQuery(Struct, kw_only=True):
    """How much of the output is returned."""

    tail: Annotated[int, Meta(ge=1, le=MOST_LOG_BYTES)] = MOST_LOG_BYTES
    """How many bytes at the end of the output; 10,000,000 are kept."""


@INSTANCE_POOLS.answers.creates(
    INSTANCE_POOL.path, INSTANCE_POOL.action("create"), status=202, statuses=(404, 409)
)
async def create_instance_pool(
    data: JSONBody[CreateInstancePool], ctx: Context, needs: Needs[ComputeNeeds]
) -> Reply[ResponseBody]:
    """Create an instance pool, whose instances are started some time later.

    An account has at most 50. For a role, the caller needs `iam:PassRole`, and the role's trust
    policy must allow instances. It is 409 if no machine runs instances.
    """
    new = INSTANCE_POOLS.new(ctx, INSTANCE_POOLS.given(data))
    _check_image(needs, new.image)
    wrap, location = INSTANCE_POOLS.one, INSTANCE_POOLS.location
    return await ctx.commit(pools.create, new, needs, ctx.right_to, wrap=wrap, location=location)


@INSTANCE_POOLS.answers.updates(
    INSTANCE_POOL.path_of_one, INSTANCE_POOL.action("update"), statuses=(409,)
)
async def update_instance_pool(
    instance_pool_id: FromPath[str],
    data: JSONBody[UpdateInstancePool],
    ctx: Context,
    needs: Needs[ComputeNeeds],
) -> Reply[ResponseBody]:
    """Change an instance pool.

    Another size starts or ends as many instances as differ. Another image, command, environment,
    memory or processor replaces all instances, one after the other, each when the one before is
    ready.
    """
    found = await INSTANCE_POOLS.authorized(ctx, instance_pool_id)
    changes, now = INSTANCE_POOLS.given(data), ctx.clock()
    if "image" in changes:
        _check_image(needs, changes["image"])
    wrap, details = INSTANCE_POOLS.one, INSTANCE_POOLS.details_if_changed(now)
    change = (found, changes, needs, ctx.right_to, now)
    return await ctx.commit(pools.update, *change, wrap=wrap, details=details)


@delete(INSTANCE_POOL.path_of_one, status_code=204, opt={"action": INSTANCE_POOL.action("delete")})
async def delete_instance_pool(instance_pool_id: FromPath[str], ctx: Context) -> None:
    """End every instance of a pool, also those that are being started, and delete the pool.

    A repeated request is 204 too, for a day after the pool is gone.
    """
    try:
        found = await INSTANCE_POOLS.authorized(ctx, instance_pool_id)
        if found.status != DELETING:
            await ctx.database.write(INSTANCE_POOLS.remove, found, ctx.clock())
    except NotFound:
        account_id, region = account_of(ctx), ctx.settings.region
        place = account_id, region, instance_pool_id
        name = await ctx.database.read(rows.name_of_deleted, *place)
        if name is None:
            raise
        ctx.authorize(INSTANCE_POOL.crn(region, account_id, name))


@_ANSWERS.lists(_INSTANCES, "compute:ListInstances")
async def list_instances(instance_pool_id: FromPath[str], ctx: Context) -> ResponseBody:
    """List the instances of a pool, oldest first."""
    pool = await INSTANCE_POOLS.authorized(ctx, instance_pool_id)
    found, meta = await read_page(
        ctx,
        ctx.query(PageQuery),
        rows.list_instances,
        rows.count_instances,
        pool.account_id,
        pool.id,
        key=lambda each: each.id,
    )
    return _ANSWERS.many([_ANSWERS.show(each) for each in found], meta)


@_ANSWERS.gets(_INSTANCES + "/{instance_id:str}", "compute:GetInstance")
async def get_instance(
    instance_pool_id: FromPath[str], instance_id: FromPath[str], ctx: Context
) -> ResponseBody:
    """Return an instance of a pool."""
    pool = await INSTANCE_POOLS.authorized(ctx, instance_pool_id)
    found = await ctx.database.read(_instance_of, pool, instance_id)
    return _ANSWERS.one(found)


@get(
    _INSTANCES + "/{instance_id:str}/logs",
    media_type="text/plain",
    opt={"action": "compute:GetInstanceLogs", "query": LogsQuery, "statuses": (503,)},
)
async def get_instance_logs(
    instance_pool_id: FromPath[str],
    instance_id: FromPath[str],
    ctx: Context,
    needs: Needs[ComputeNeeds],
) -> Response[bytes]:
    """Return the end of the output of an instance's program, unchanged.

    The last 10,000,000 bytes are kept, also when the program is started again, until the instance
    is removed. Only the machine of the instance answers; another one answers 503 with that
    machine's name.
    """
    pool = await INSTANCE_POOLS.authorized(ctx, instance_pool_id)
    tail = ctx.query(LogsQuery).tail
    found = await ctx.database.read(_instance_of, pool, instance_id)
    if needs.driver is None or found.node != needs.node.name:
        raise Unavailable(f"the machine {found.node} has the output; ask there", retry_after=60)
    written = await asyncio.to_thread(needs.driver.logs, found.id, tail)
    return Response(written, media_type="text/plain", headers=_UNTRUSTED)


def _check_image(needs: ComputeNeeds, reference: str) -> None:
    try:
        needs.images.check(reference)
    except InvalidInput as error:
        words = error.message if error.message.startswith("image") else f"image: {error.message}"
        raise InvalidInput(words, field="image", reason="malformed") from None


def _instance_of(tx: Connection, pool: InstancePool, instance_id: str) -> Instance:
    found = INSTANCE_ROWS.find(tx, pool.account_id, instance_id)
    if found is None or found.pool.id != pool.id:
        raise NotFound("there is no such instance")
    return found

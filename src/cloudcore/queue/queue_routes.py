"""``/v1/queues``: the standard methods, what a queue holds, and its purge."""

from __future__ import annotations

from typing import Final

from litestar import get, post
from litestar.di import NamedDependency
from litestar.params import FromPath

from cloudcore.queue import message_rows
from cloudcore.queue.queue import QUEUE
from cloudcore.queue.queues import QUEUES, depth_of, purge
from cloudcore.resources.routes import answers_one, standard_routes
from cloudcore.web.context import Reply, RequestContext
from cloudcore.wire import ResponseBody


@get(QUEUE.path_of_one, opt={"action": "queue:GetQueue"})
@answers_one(QUEUES)
async def get_queue(queue_id: FromPath[str], ctx: NamedDependency[RequestContext]) -> ResponseBody:
    """Return a queue, with what it holds now."""
    queue = await QUEUES.authorized(ctx, queue_id)
    now = ctx.clock()
    depth = await ctx.database.read(message_rows.depth, queue, now)
    return QUEUES.one(queue, depth=depth_of(depth, now))


@post(
    QUEUE.path_of_one + "/purge",
    status_code=200,
    opt={"action": "queue:PurgeQueue", "idempotent": True},
)
@answers_one(QUEUES)
async def purge_queue(
    queue_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> Reply[ResponseBody]:
    """Delete all messages that were sent before, also those that are leased."""
    queue = await QUEUES.authorized(ctx, queue_id)
    return await ctx.commit(purge, queue, wrap=QUEUES.one)


HANDLERS: Final = (*standard_routes(QUEUES), get_queue, purge_queue)

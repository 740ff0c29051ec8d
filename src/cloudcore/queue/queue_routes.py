"""``/v1/queues``: create, show, change, purge and delete the queues of an account."""

from __future__ import annotations

from functools import partial
from typing import Final

from litestar import delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import UNSET

from cloudcore.db.base import Connection
from cloudcore.queue import message_rows, services
from cloudcore.queue.records import (
    CreateQueue,
    GivenRedrivePolicy,
    ManyQueues,
    OneQueue,
    QueueQuery,
    UpdateQueue,
    one_queue,
    queue_record,
)
from cloudcore.queue.references import resolve_queue
from cloudcore.queue.rows import Queue, count_queues, list_queues, queue_crn
from cloudcore.queue.services import DEAD_LETTER_QUEUE, Redrive
from cloudcore.resource_names import check_name, check_tags
from cloudcore.web.callers import account_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.listing import read_page
from cloudcore.wire import changes_of

PATH: Final = "/v1/queues"
ONE: Final = PATH + "/{queue_id:str}"
_SEND: Final = "queue:SendMessage"
"""The action on a dead-letter queue that naming it needs: its messages go there."""


async def authorized_queue(ctx: RequestContext, queue_id: str) -> Queue:
    """Return a queue of the caller's account; raise `AccessDenied` if policies refuse."""
    region = ctx.settings.region
    found = await ctx.database.read(services.get_queue, account_of(ctx), region, queue_id)
    ctx.authorize(found.crn)
    return found


@post(
    PATH,
    status_code=201,
    opt={"action": "queue:CreateQueue", "idempotent": True, "statuses": (404,)},
)
async def create_queue(
    data: JSONBody[CreateQueue], ctx: NamedDependency[RequestContext]
) -> Reply[OneQueue]:
    """Create a queue. An account has at most 1,000.

    With a redrive policy, the caller needs `queue:SendMessage` on the dead-letter queue.
    """
    account_id, region, now = account_of(ctx), ctx.settings.region, ctx.clock()
    check_name(data.name)
    check_tags(data.tags)
    ctx.authorize(queue_crn(region, account_id, data.name))
    redrive = await _redrive(ctx, data.redrive_policy)
    queue = Queue(
        id=ctx.new_id(),
        account_id=account_id,
        region=region,
        name=data.name,
        description=data.description,
        tags=data.tags,
        retention_seconds=data.retention_seconds,
        lease_seconds=data.lease_seconds,
        delay_seconds=data.delay_seconds,
        dead_letter_queue_id=None,
        max_leases=None,
        purged_through=0,
        created_at=now,
        updated_at=now,
    )
    return await ctx.commit(
        services.create_queue,
        queue,
        redrive,
        wrap=one_queue,
        location=lambda made: f"{PATH}/{made.id}",
    )


@get(PATH, opt={"action": "queue:ListQueues", "query": QueueQuery})
async def list_account_queues(ctx: NamedDependency[RequestContext]) -> ManyQueues:
    """List the account's queues, oldest first."""
    account_id, region, query = account_of(ctx), ctx.settings.region, ctx.query(QueueQuery)
    ctx.authorize(queue_crn(region, account_id, "*"))
    found, meta = await read_page(
        ctx,
        query,
        list_queues,
        count_queues,
        account_id,
        region,
        query.name or "",
        key=lambda queue: queue.id,
    )
    return ManyQueues(queues=[queue_record(each) for each in found], meta=meta)


@get(ONE, opt={"action": "queue:GetQueue"})
async def get_queue(queue_id: FromPath[str], ctx: NamedDependency[RequestContext]) -> OneQueue:
    """Return a queue, with what it holds now."""
    queue = await authorized_queue(ctx, queue_id)
    now = ctx.clock()
    depth = await ctx.database.read(message_rows.depth, queue, now)
    return OneQueue(queue=queue_record(queue, depth, now))


@patch(ONE, opt={"action": "queue:UpdateQueue"})
async def update_queue(
    queue_id: FromPath[str], data: JSONBody[UpdateQueue], ctx: NamedDependency[RequestContext]
) -> Reply[OneQueue]:
    """Change a queue; its name stays.

    With a redrive policy, the caller needs `queue:SendMessage` on the dead-letter queue, from which
    no dead letters may come back to this one.
    """
    queue = await authorized_queue(ctx, queue_id)
    if data.tags is not UNSET:
        check_tags(data.tags)
    changes = changes_of(data)
    changes.pop("redrive_policy", None)
    given = data.redrive_policy
    redrive = None if given is UNSET else await _redrive(ctx, given)
    change = partial(services.update_queue, sets_redrive=given is not UNSET)
    return await ctx.commit(change, queue, changes, redrive, ctx.clock(), wrap=one_queue)


@delete(ONE, status_code=204, opt={"action": "queue:DeleteQueue", "statuses": (409,)})
async def delete_queue(queue_id: FromPath[str], ctx: NamedDependency[RequestContext]) -> None:
    """Delete a queue and its messages. That to which dead letters of another go stays (409)."""
    queue = await authorized_queue(ctx, queue_id)
    await ctx.database.write(services.delete_queue, queue, ctx.clock())


@post(ONE + "/purge", status_code=200, opt={"action": "queue:PurgeQueue", "idempotent": True})
async def purge_queue(
    queue_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> Reply[OneQueue]:
    """Delete all messages that were sent before, also those that are leased."""
    queue = await authorized_queue(ctx, queue_id)

    def purge(tx: Connection) -> Queue:
        return services.purge_queue(tx, queue)

    return await ctx.commit(purge, wrap=one_queue)


async def _redrive(ctx: RequestContext, given: GivenRedrivePolicy | None) -> Redrive | None:
    """Return the redrive policy of a request, to whose queue the caller may send."""
    if given is None:
        return None
    found = await ctx.database.read(
        resolve_queue,
        account_of(ctx),
        ctx.settings.region,
        DEAD_LETTER_QUEUE,
        given.dead_letter_queue,
        ctx.right_to(_SEND),
    )
    return Redrive(found.id, given.max_leases)


HANDLERS: Final = (
    create_queue,
    list_account_queues,
    get_queue,
    update_queue,
    delete_queue,
    purge_queue,
)

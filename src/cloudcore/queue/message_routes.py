"""``/v1/queues/{queue_id}/messages``: send, lease, acknowledge and extend.

Messages pass by the thousand, so the audit log has none of them, only the refusals.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from litestar import post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from cloudcore.errors import InvalidInput
from cloudcore.queue import messages
from cloudcore.queue.leases import new_token
from cloudcore.queue.messages import Leased, LeaseTerms, NewMessage
from cloudcore.queue.needs import QueueNeeds
from cloudcore.queue.queue import QUEUE
from cloudcore.queue.queues import QUEUES
from cloudcore.queue.records import (
    Acknowledged,
    AcknowledgeMessages,
    Extended,
    ExtendLeases,
    GivenMessage,
    LeaseMessages,
    ManyLeasedMessages,
    ManySentMessages,
    SendMessages,
    done_and_failed,
    leased_messages,
    sent_messages,
)
from cloudcore.queue.rules import check_message
from cloudcore.web.app import Needs
from cloudcore.web.context import Reply, RequestContext

MESSAGES: Final = QUEUE.path_of_one + "/messages"
_MOST_TRIES: Final = 20
"""Transactions of one look for messages, each of which moves on a hundred that are over."""


@post(MESSAGES, status_code=201, opt={"action": "queue:SendMessage", "idempotent": True})
async def send_messages(
    queue_id: FromPath[str],
    data: JSONBody[SendMessages],
    ctx: NamedDependency[RequestContext],
    needs: Needs[QueueNeeds],
) -> Reply[ManySentMessages]:
    """Send a message, or up to 100 in `messages`: all of them or, on an error, none.

    A queue holds at most 100,000 messages, and 1 GiB.
    """
    queue = await QUEUES.authorized(ctx, queue_id)
    new = _new_messages(data)
    now = ctx.clock()
    is_counted = needs.room.is_due(queue.id, now)
    send = partial(messages.send_messages, checks_room=is_counted)
    reply = await ctx.commit(
        send, queue.account_id, queue.id, new, now, wrap=sent_messages, told=lambda _: None
    )
    if is_counted:
        needs.room.note(queue.id, now)
    needs.bells.ring(queue.id, len(new))
    return reply


@post(MESSAGES + "/lease", status_code=200, opt={"action": "queue:LeaseMessages"})
async def lease_messages(
    queue_id: FromPath[str],
    data: JSONBody[LeaseMessages],
    ctx: NamedDependency[RequestContext],
    needs: Needs[QueueNeeds],
) -> ManyLeasedMessages:
    """Lease the oldest messages that can be leased; nobody else gets them until the leases end.

    The answer has fewer than `max_messages` if there are fewer, or if they are large. It waits up
    to `wait_seconds` for the first; the caller must still have the right then. A lease ends earlier
    when its message is acknowledged.
    """
    queue = await QUEUES.authorized(ctx, queue_id)
    database, clock = needs.database, ctx.clock

    async def due_at() -> int | None:
        return await database.read(messages.first_due, queue.account_id, queue.id, clock())

    async def take() -> list[Leased]:
        terms = LeaseTerms(data.max_messages, data.lease_seconds, new_token())
        for _ in range(_MOST_TRIES):
            # A lease that is lost in a power failure costs a delivery more.
            leased = await database.write_relaxed(
                messages.lease_messages, queue.account_id, queue.id, terms, clock()
            )
            if leased is not None:
                return leased
        return []

    check = partial(ctx.authorize_again, queue.crn)
    leased = await needs.waiter.first(queue.id, data.wait_seconds, due_at, check, take)
    return leased_messages(leased)


@post(MESSAGES + "/acknowledge", status_code=200, opt={"action": "queue:AcknowledgeMessages"})
async def acknowledge_messages(
    queue_id: FromPath[str],
    data: JSONBody[AcknowledgeMessages],
    ctx: NamedDependency[RequestContext],
    needs: Needs[QueueNeeds],
) -> Acknowledged:
    """Delete leased messages. What became of each lease is in the answer, also if it ended before.

    A lease is acknowledged once.
    """
    queue = await QUEUES.authorized(ctx, queue_id)
    outcomes = await needs.database.write(messages.acknowledge, queue, data.lease_ids, ctx.clock())
    done, failed = done_and_failed(outcomes)
    return Acknowledged(acknowledged=done, failures=failed)


@post(MESSAGES + "/extend", status_code=200, opt={"action": "queue:LeaseMessages"})
async def extend_leases(
    queue_id: FromPath[str],
    data: JSONBody[ExtendLeases],
    ctx: NamedDependency[RequestContext],
    needs: Needs[QueueNeeds],
) -> Extended:
    """Let leases end some seconds from now; 0 gives the messages back at once."""
    queue = await QUEUES.authorized(ctx, queue_id)
    outcomes = await needs.database.write_relaxed(
        messages.extend, queue, data.lease_ids, data.lease_seconds, ctx.clock()
    )
    done, failed = done_and_failed(outcomes)
    if data.lease_seconds == 0:
        needs.bells.ring(queue.id, len(done))
    return Extended(extended=done, failures=failed)


def _new_messages(data: SendMessages) -> list[NewMessage]:
    """Return the messages of a request, checked."""
    if data.messages is None:
        if data.body is None:
            raise InvalidInput("body: is required", field="body", reason="missing")
        return [_new("", data.body, data.attributes, data.delay_seconds)]
    if data.body is not None or data.attributes or data.delay_seconds is not None:
        raise InvalidInput(
            "messages: either one message, or several in messages; they have their own fields",
            field="messages",
            reason="ambiguous",
        )
    return [_given(f"messages[{place}].", each) for place, each in enumerate(data.messages)]


def _given(field: str, given: GivenMessage) -> NewMessage:
    return _new(field, given.body, given.attributes, given.delay_seconds)


def _new(field: str, body: str, attributes: dict[str, str], delay: int | None) -> NewMessage:
    return NewMessage(body, attributes, check_message(field, body, attributes), delay)


HANDLERS: Final = (send_messages, lease_messages, acknowledge_messages, extend_leases)

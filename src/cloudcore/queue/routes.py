"""``/v1/queues``: the standard methods, the depth and the purge of a queue, and its messages.

Messages are too many for the audit log: only refused requests are recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final

from litestar import Request, post
from litestar.params import FromPath, JSONBody
from msgspec import Meta, field

from cloudcore.errors import invalid_field
from cloudcore.queue import message_rows, messages
from cloudcore.queue.message_rows import Message
from cloudcore.queue.messages import FailedLease, NewMessage, lease_id
from cloudcore.queue.needs import QueueNeeds
from cloudcore.queue.queue import MAX_BATCH, QUEUE, Delay, LeaseSeconds, check_message
from cloudcore.queue.queues import QUEUES, depth_of, purge
from cloudcore.resource_names import Uuid
from cloudcore.resources.routes import custom_method
from cloudcore.web.app import Context, Needs
from cloudcore.web.context import Reply
from cloudcore.web.request_state import until_nobody_waits
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, rfc3339

_LeaseIds = Annotated[list[str], Meta(min_length=1, max_length=MAX_BATCH)]


class GivenMessage(RequestBody):
    """A message to send."""

    body: str
    """At least one character; with the attributes at most 262,144 bytes of UTF-8."""
    attributes: dict[str, str] = field(default_factory=dict)
    """At most 20."""
    delay_seconds: Delay | None = None
    """Seconds until the message can be leased; by default, as the queue says."""


class SendMessages(RequestBody):
    """One message, or several in `messages`; those have their own fields."""

    body: str | None = None
    attributes: dict[str, str] = field(default_factory=dict)
    delay_seconds: Delay | None = None
    messages: Annotated[list[GivenMessage], Meta(min_length=1, max_length=MAX_BATCH)] | None = None


class SentMessage(ResponseBody):
    """A message that was sent."""

    id: Uuid
    sent_at: RFC3339


class ManySentMessages(ResponseBody):
    """The messages that were sent, in the order of the request."""

    messages: Sequence[SentMessage]


class LeaseMessages(RequestBody):
    """How many messages to lease, for how long, and how long to wait for the first."""

    max_messages: Annotated[int, Meta(ge=1, le=MAX_BATCH)] = 1
    lease_seconds: LeaseSeconds | None = None
    """By default, as the queue says."""
    wait_seconds: Annotated[int, Meta(ge=0, le=20)] = 0
    """The answer comes as soon as there is a message."""


class LeasedMessage(ResponseBody):
    """A message that is leased."""

    id: Uuid
    lease_id: str
    """Names the lease in a request that acknowledges the message or extends the lease."""
    lease_ends_at: RFC3339
    lease_count: int
    """How often the message was leased from this queue, including this lease."""
    sent_at: RFC3339
    attributes: dict[str, str]
    body: str


class ManyLeasedMessages(ResponseBody):
    """The leased messages, in the order in which they arrived; empty if there were none."""

    messages: Sequence[LeasedMessage]


class AcknowledgeMessages(RequestBody):
    """The leases whose messages are to be deleted."""

    lease_ids: _LeaseIds


class ExtendLeases(RequestBody):
    """The leases to extend."""

    lease_ids: _LeaseIds
    lease_seconds: Annotated[int, Meta(ge=0, le=43_200)]
    """Seconds from now; 0 ends the leases, so that others get the messages."""


class Acknowledged(ResponseBody):
    """The outcome for each lease."""

    acknowledged: Sequence[str]
    failures: Sequence[FailedLease]


class Extended(ResponseBody):
    """The outcome for each lease."""

    extended: Sequence[str]
    failures: Sequence[FailedLease]


def _sent_messages(messages: Sequence[Message]) -> ManySentMessages:
    return ManySentMessages(
        messages=[SentMessage(id=each.id, sent_at=rfc3339(each.sent_at)) for each in messages]
    )


def _leased_message(message: Message) -> LeasedMessage:
    assert message.hidden_until is not None
    return LeasedMessage(
        id=message.id,
        lease_id=lease_id(message.id, message.lease_token),
        lease_ends_at=rfc3339(message.hidden_until),
        lease_count=message.lease_count,
        sent_at=rfc3339(message.sent_at),
        attributes=dict(message.attributes),
        body=message.body.decode(),
    )


@QUEUES.answers.gets(QUEUE.path_of_one, "queue:GetQueue")
async def get_queue(queue_id: FromPath[str], ctx: Context) -> ResponseBody:
    """Return a queue, with how many messages it holds now."""
    queue = await QUEUES.authorized(ctx, queue_id)
    now = ctx.clock()
    depth = await ctx.database.read(message_rows.depth, queue, now)
    return QUEUES.one(queue, depth=depth_of(depth, now))


@custom_method(QUEUES, "purge", "queue:PurgeQueue")
async def purge_queue(queue_id: FromPath[str], ctx: Context) -> Reply[ResponseBody]:
    """Delete all messages sent so far, including leased ones."""
    queue = await QUEUES.authorized(ctx, queue_id)
    return await ctx.commit(purge, queue, wrap=QUEUES.one)


MESSAGES: Final = QUEUE.path_of_one + "/messages"
_MOST_TRIES: Final = 20
"""Maximum transactions of one attempt to lease; each settles a limited number of due messages."""


@post(MESSAGES, status_code=201, opt={"action": "queue:SendMessage", "idempotent": True})
async def send_messages(
    queue_id: FromPath[str], data: JSONBody[SendMessages], ctx: Context, needs: Needs[QueueNeeds]
) -> Reply[ManySentMessages]:
    """Send a message, or up to 100 in `messages`: all of them or, on an error, none.

    A queue holds at most 100,000 messages, and 1 GiB.
    """
    queue = await QUEUES.authorized(ctx, queue_id)
    new = _new_messages(data)
    now = ctx.clock()
    with needs.room.checking(queue.id, now) as is_counted:
        send = partial(messages.send_messages, checks_room=is_counted)
        reply = await ctx.commit(
            send, queue.account_id, queue.id, new, now, wrap=_sent_messages, details=lambda _: None
        )
    needs.consumers.notify(queue.id, len(new))
    return reply


@post(MESSAGES + "/lease", status_code=200, opt={"action": "queue:LeaseMessages"})
async def lease_messages(
    queue_id: FromPath[str],
    data: JSONBody[LeaseMessages],
    request: Request[Any, Any, Any],
    ctx: Context,
    needs: Needs[QueueNeeds],
) -> ManyLeasedMessages:
    """Lease the oldest messages that can be leased; nobody else gets them until the leases end.

    The answer has fewer than `max_messages` if there are fewer, or if they are large. It waits up
    to `wait_seconds` for the first; the caller must still have the right, and be connected, then. A
    lease ends earlier when its message is acknowledged.
    """
    queue = await QUEUES.authorized(ctx, queue_id)
    database, clock = needs.database, ctx.clock

    async def due_at() -> int | None:
        return await database.read(messages.first_due, queue.account_id, queue.id, clock())

    async def take() -> list[Message]:
        of, terms = (queue.account_id, queue.id), (data.max_messages, data.lease_seconds)
        for _ in range(_MOST_TRIES):
            # A lease lost in a power failure only means one more delivery.
            leased = await database.write_relaxed(messages.lease_messages, *of, *terms, clock())
            if leased is not None:
                return leased
        return []

    check = partial(ctx.authorize_again, queue.crn)
    leave = partial(until_nobody_waits, request.scope)
    waited = needs.consumers.wait_for(queue.id, data.wait_seconds, due_at, check, take, leave)
    leased = await waited
    return ManyLeasedMessages(messages=[_leased_message(each) for each in leased])


@post(MESSAGES + "/acknowledge", status_code=200, opt={"action": "queue:AcknowledgeMessages"})
async def acknowledge_messages(
    queue_id: FromPath[str],
    data: JSONBody[AcknowledgeMessages],
    ctx: Context,
    needs: Needs[QueueNeeds],
) -> Acknowledged:
    """Delete leased messages. The answer has the outcome for each lease, even if it had ended.

    A lease can be acknowledged once.
    """
    queue = await QUEUES.authorized(ctx, queue_id)
    write, now = needs.database.write, ctx.clock()
    done, failed = await write(messages.acknowledge, queue, data.lease_ids, now)
    return Acknowledged(acknowledged=done, failures=failed)


@post(MESSAGES + "/extend", status_code=200, opt={"action": "queue:LeaseMessages"})
async def extend_leases(
    queue_id: FromPath[str], data: JSONBody[ExtendLeases], ctx: Context, needs: Needs[QueueNeeds]
) -> Extended:
    """Set when leases end, in seconds from now; 0 lets others lease the messages at once."""
    queue = await QUEUES.authorized(ctx, queue_id)
    done, failed = await needs.database.write_relaxed(
        messages.extend, queue, data.lease_ids, data.lease_seconds, ctx.clock()
    )
    if data.lease_seconds == 0:
        needs.consumers.notify(queue.id, len(done))
    return Extended(extended=done, failures=failed)


def _new_messages(data: SendMessages) -> list[NewMessage]:
    if data.messages is None:
        if data.body is None:
            raise invalid_field("body", "is required", "missing")
        return [_new("", data.body, data.attributes, data.delay_seconds)]
    if data.body is not None or data.attributes or data.delay_seconds is not None:
        raise invalid_field(
            "messages",
            "either one message, or several in messages; they have their own fields",
            "ambiguous",
        )
    return [
        _new(f"messages[{place}].", each.body, each.attributes, each.delay_seconds)
        for place, each in enumerate(data.messages)
    ]


def _new(field: str, body: str, attributes: dict[str, str], delay: int | None) -> NewMessage:
    return NewMessage(body, attributes, check_message(field, body, attributes), delay)

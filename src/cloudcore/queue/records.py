"""The bodies of ``/v1/queues``: requests and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType, field

from cloudcore.clock import MICROSECONDS
from cloudcore.queue.message_rows import Depth, Message
from cloudcore.queue.messages import Leased, Outcome
from cloudcore.queue.rows import Queue, queue_crn
from cloudcore.queue.rules import MAX_BATCH
from cloudcore.uuids import Uuid
from cloudcore.web.pagination import PageMeta, PageQuery
from cloudcore.web.references import ResourceRef
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, rfc3339

QueueName = Annotated[str, Meta(min_length=1, max_length=63)]
Description = Annotated[str, Meta(max_length=1000)]
Retention = Annotated[int, Meta(ge=60, le=1_209_600)]
LeaseSeconds = Annotated[int, Meta(ge=1, le=43_200)]
Delay = Annotated[int, Meta(ge=0, le=900)]
MaxLeases = Annotated[int, Meta(ge=1, le=1000)]
_LeaseIds = Annotated[list[str], Meta(min_length=1, max_length=MAX_BATCH)]


class GivenRedrivePolicy(RequestBody):
    """Where messages go that are leased again and again without an acknowledgement."""

    dead_letter_queue: str
    """The id, the name or the CRN of another queue of the account."""
    max_leases: MaxLeases
    """A message goes there when its lease ends and it was leased so often."""


class CreateQueue(RequestBody):
    """A new queue; its name is fixed."""

    name: QueueName
    description: Description = ""
    retention_seconds: Retention = 345_600
    """Seconds after which a message is deleted that nobody has acknowledged; 4 days."""
    lease_seconds: LeaseSeconds = 30
    """Seconds of a lease that says none itself."""
    delay_seconds: Delay = 0
    """Seconds until a new message can be leased."""
    redrive_policy: GivenRedrivePolicy | None = None
    tags: dict[str, str] = field(default_factory=dict)


class UpdateQueue(RequestBody):
    """The fields to change; `redrive_policy` and `tags` are replaced whole."""

    description: Description | UnsetType = UNSET
    retention_seconds: Retention | UnsetType = UNSET
    lease_seconds: LeaseSeconds | UnsetType = UNSET
    delay_seconds: Delay | UnsetType = UNSET
    """For messages sent from now on."""
    redrive_policy: GivenRedrivePolicy | UnsetType | None = UNSET
    """Null: messages stay, however often they are leased."""
    tags: dict[str, str] | UnsetType = UNSET


class QueueQuery(PageQuery):
    """The filter of a list of queues."""

    name: QueueName | None = None
    """Only the queue of this name."""


class RedrivePolicy(ResponseBody):
    """Where messages go that are leased again and again without an acknowledgement."""

    dead_letter_queue: ResourceRef
    max_leases: int


class QueueDepth(ResponseBody):
    """What a queue holds."""

    visible: int
    """Messages that can be leased."""
    leased: int
    delayed: int
    oldest_age_seconds: int | None
    """Seconds since the oldest message came; null if there is none."""


class QueueRecord(ResponseBody):
    """A queue."""

    id: Uuid
    crn: str
    name: str
    description: str
    retention_seconds: int
    lease_seconds: int
    delay_seconds: int
    redrive_policy: RedrivePolicy | None
    tags: dict[str, str]
    created_at: RFC3339
    updated_at: RFC3339
    depth: QueueDepth | UnsetType = UNSET
    """Of a single queue; absent in lists and after changes."""


class OneQueue(ResponseBody):
    """A queue, wrapped."""

    queue: QueueRecord


class ManyQueues(ResponseBody):
    """A page of queues."""

    queues: Sequence[QueueRecord]
    meta: PageMeta


class GivenMessage(RequestBody):
    """A message to send."""

    body: str
    """At least one character; with the attributes at most 262,144 bytes of UTF-8."""
    attributes: dict[str, str] = field(default_factory=dict)
    """At most 20."""
    delay_seconds: Delay | None = None
    """Seconds until it can be leased; without it, as the queue says."""


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
    """Without it, as the queue says."""
    wait_seconds: Annotated[int, Meta(ge=0, le=20)] = 0
    """The answer comes as soon as there is a message."""


class LeasedMessage(ResponseBody):
    """A message that is leased."""

    id: Uuid
    lease_id: str
    """With which to acknowledge it, or to extend the lease."""
    lease_ends_at: RFC3339
    lease_count: int
    """How often it was leased in this queue, this time included."""
    sent_at: RFC3339
    attributes: dict[str, str]
    body: str


class ManyLeasedMessages(ResponseBody):
    """The leased messages, in the order in which they arrived; none if there was none."""

    messages: Sequence[LeasedMessage]


class AcknowledgeMessages(RequestBody):
    """The leases whose messages are done with."""

    lease_ids: _LeaseIds


class ExtendLeases(RequestBody):
    """The leases to extend."""

    lease_ids: _LeaseIds
    lease_seconds: Annotated[int, Meta(ge=0, le=43_200)]
    """Seconds from now; 0 ends the leases, so that others get the messages."""


class FailedLease(ResponseBody):
    """A lease that nothing was done to, and why."""

    lease_id: str
    code: Literal["LEASE_EXPIRED", "NOT_FOUND"]
    """`LEASE_EXPIRED`: it ended before, so the message is leased again. `NOT_FOUND`: it was
    acknowledged, or its message is gone, or it never was."""
    message: str


class Acknowledged(ResponseBody):
    """What became of each lease."""

    acknowledged: Sequence[str]
    failures: Sequence[FailedLease]


class Extended(ResponseBody):
    """What became of each lease."""

    extended: Sequence[str]
    failures: Sequence[FailedLease]


def queue_record(queue: Queue, depth: Depth | None = None, now: int = 0) -> QueueRecord:
    """Return the record of a queue."""
    return QueueRecord(
        id=queue.id,
        crn=queue.crn,
        name=queue.name,
        description=queue.description,
        retention_seconds=queue.retention_seconds,
        lease_seconds=queue.lease_seconds,
        delay_seconds=queue.delay_seconds,
        redrive_policy=_redrive_policy(queue),
        tags=dict(queue.tags),
        created_at=rfc3339(queue.created_at),
        updated_at=rfc3339(queue.updated_at),
        depth=UNSET if depth is None else _depth_record(depth, now),
    )


def one_queue(queue: Queue) -> OneQueue:
    """Return the record of a queue, wrapped."""
    return OneQueue(queue=queue_record(queue))


def sent_messages(messages: Sequence[Message]) -> ManySentMessages:
    """Return the records of messages that were sent."""
    return ManySentMessages(
        messages=[SentMessage(id=each.id, sent_at=rfc3339(each.sent_at)) for each in messages]
    )


def leased_messages(leased: Sequence[Leased]) -> ManyLeasedMessages:
    """Return the records of leased messages."""
    return ManyLeasedMessages(messages=[_leased_message(each) for each in leased])


def done_and_failed(outcomes: Sequence[Outcome]) -> tuple[list[str], list[FailedLease]]:
    """Return the leases that something was done to, and the others."""
    done = [each.lease_id for each in outcomes if each.code is None]
    failed = [
        FailedLease(
            lease_id=each.lease_id,
            code="LEASE_EXPIRED" if each.code == "LEASE_EXPIRED" else "NOT_FOUND",
            message=each.message,
        )
        for each in outcomes
        if each.code is not None
    ]
    return done, failed


def _leased_message(leased: Leased) -> LeasedMessage:
    message = leased.message
    assert message.hidden_until is not None
    return LeasedMessage(
        id=message.id,
        lease_id=leased.lease_id,
        lease_ends_at=rfc3339(message.hidden_until),
        lease_count=message.lease_count,
        sent_at=rfc3339(message.sent_at),
        attributes=dict(message.attributes),
        body=message.body.decode(),
    )


def _redrive_policy(queue: Queue) -> RedrivePolicy | None:
    other, name = queue.dead_letter_queue_id, queue.dead_letter_queue_name
    if other is None or name is None or queue.max_leases is None:
        return None
    reference = ResourceRef(
        id=other, crn=queue_crn(queue.region, queue.account_id, name), name=name
    )
    return RedrivePolicy(dead_letter_queue=reference, max_leases=queue.max_leases)


def _depth_record(depth: Depth, now: int) -> QueueDepth:
    oldest = depth.oldest_at
    return QueueDepth(
        visible=depth.visible,
        leased=depth.leased,
        delayed=depth.delayed,
        oldest_age_seconds=None if oldest is None else max(0, now - oldest) // MICROSECONDS,
    )

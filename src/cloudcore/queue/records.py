"""The bodies of ``/v1/queues/{queue_id}/messages``: requests and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, field

from cloudcore.queue.message_rows import Message
from cloudcore.queue.messages import Leased, Outcome
from cloudcore.queue.queue import Delay, LeaseSeconds
from cloudcore.queue.rules import MAX_BATCH
from cloudcore.uuids import Uuid
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, rfc3339

_LeaseIds = Annotated[list[str], Meta(min_length=1, max_length=MAX_BATCH)]


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

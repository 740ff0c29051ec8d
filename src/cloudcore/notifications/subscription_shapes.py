"""The bodies of subscriptions: requests and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType, field

from cloudcore.notifications.delivery_policy import DeliveryPolicy, shown
from cloudcore.notifications.outcomes import current, severity
from cloudcore.notifications.records import Protocol, Status, Subscription
from cloudcore.uuids import Uuid
from cloudcore.web.fault_records import FaultRecord, fault_record
from cloudcore.web.pagination import PageMeta
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, rfc3339

MAX_ENDPOINT: Final = 2048
"""PostgreSQL indexes no text of more than 2,704 bytes, and an endpoint is in a unique index."""
_Value = Annotated[str, Meta(max_length=1024)]
FilterPolicy = dict[str, Annotated[list[_Value], Meta(min_length=1, max_length=150)]]


class DeadLetters(RequestBody):
    """Where messages go whose last attempt has failed."""

    dead_letter_queue: Annotated[str, Meta(min_length=1, max_length=600)]
    """The name, id or CRN of a queue of the account; answers have the CRN."""


class Subscribe(RequestBody):
    """A new subscription; its protocol and endpoint are fixed."""

    protocol: Protocol
    endpoint: Annotated[str, Meta(min_length=1, max_length=MAX_ENDPOINT)]
    """An e-mail address; a URL that begins with the protocol; or the name, id or CRN of a queue."""
    filter_policy: FilterPolicy = field(default_factory=dict)
    """Accepted values by the name of an attribute; all names must match. Empty: every message."""
    redrive_policy: DeadLetters | None = None
    raw_message_delivery: bool = False
    """Post the message itself instead of the envelope; webhooks only."""
    delivery_policy: DeliveryPolicy | None = None
    """Overrides the topic's, field by field."""


class UpdateSubscription(RequestBody):
    """The fields to change; each is replaced whole."""

    filter_policy: FilterPolicy | UnsetType | None = UNSET
    """Empty: every message."""
    redrive_policy: DeadLetters | UnsetType | None = UNSET
    raw_message_delivery: bool | UnsetType | None = UNSET
    delivery_policy: DeliveryPolicy | UnsetType | None = UNSET


class SubscriptionRecord(ResponseBody):
    """A subscription, without its topic and its secret."""

    id: Uuid
    crn: str
    protocol: Protocol
    endpoint: str
    """Of a queue its CRN."""
    status: Status
    filter_policy: dict[str, list[str]]
    redrive_policy: DeadLetters | None
    raw_message_delivery: bool
    delivery_policy: DeliveryPolicy | None
    """Only the fields that are set here."""
    confirmation_expires_at: RFC3339 | None
    """Null once it is confirmed."""
    faults: Sequence[FaultRecord]
    created_at: RFC3339
    updated_at: RFC3339


class OneSubscription(ResponseBody):
    """A subscription, wrapped."""

    subscription: SubscriptionRecord


class NewSubscription(ResponseBody):
    """A subscription, wrapped; a webhook that is new comes with its secret."""

    subscription: SubscriptionRecord
    signing_secret: str | UnsetType = UNSET
    """Shown when a webhook is first created; also see ``…/signing-secret``."""


class ManySubscriptions(ResponseBody):
    """A page of subscriptions."""

    subscriptions: Sequence[SubscriptionRecord]
    meta: PageMeta


class SigningSecret(ResponseBody):
    """What signs the deliveries to a webhook."""

    signing_secret: str
    previous_signing_secret: str | None
    """Signs too until `previous_expires_at`."""
    previous_expires_at: RFC3339 | None


class Confirm(RequestBody):
    """The token of a request to confirm a subscription."""

    token: str
    """The token, or the whole link that it came in."""


class Confirmed(ResponseBody):
    """The subscription that was confirmed."""

    subscription_id: Uuid
    endpoint: str
    status: Status
    topic_name: str


def subscription_record(found: Subscription, region: str, now: int) -> SubscriptionRecord:
    """Return the record of a subscription."""
    queue, until = found.dead_letter_queue, found.confirmation_until
    return SubscriptionRecord(
        id=found.id,
        crn=f"crn:notifications:{region}:{found.account_id}:subscription/{found.id}",
        protocol=found.protocol,
        endpoint=found.endpoint,
        status=found.status,
        filter_policy={name: list(values) for name, values in found.filter_policy.items()},
        redrive_policy=None if queue is None else DeadLetters(dead_letter_queue=queue),
        raw_message_delivery=found.raw_message_delivery,
        delivery_policy=shown(found.delivery_policy),
        confirmation_expires_at=None if until is None else rfc3339(until),
        faults=[fault_record(each, severity(each)) for each in current(found.faults, now)],
        created_at=rfc3339(found.created_at),
        updated_at=rfc3339(found.updated_at),
    )

"""Topics and their subscriptions (`Topic`, `Subscription`), and the limits of messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta, field

from cloudcore.errors import InvalidInput, NotFound, invalid_field
from cloudcore.jobs.faults import Fault
from cloudcore.metering.sku import Sku
from cloudcore.outbound.destinations import Destination
from cloudcore.quotas.quota import Quota
from cloudcore.resource_names import parse_uuid
from cloudcore.resources.resource import Filter, Record, Resource, fixed, given, own

Protocol = Literal["email", "http", "https", "queue"]
Status = Literal["pending_confirmation", "confirmed"]
FilterPolicy = Mapping[str, Sequence[str]]
Settings = Mapping[str, Any]
"""The fields of a delivery policy that are set; see `delivery_policy.DeliveryPolicy`."""
DELIVERIES: Final = Sku("notifications.deliveries", "Deliveries", "1000 deliveries", 1000)
"""Messages that endpoints accepted, by webhook, mail or queue."""
WEBHOOKS: Final = frozenset({"http", "https"})
SEND_MESSAGE: Final = "queue:SendMessage"
"""The action that a caller needs on a queue to subscribe it, or to use it for dead letters."""


class Publication(NamedTuple):
    """A message that was published to a topic."""

    id: str
    topic_id: str
    account_id: str
    subject: str | None
    message: str
    attributes: Mapping[str, str]
    published_at: int
    content_type: str | None = None
    """Media type of the message, if one was published with it."""


class PendingDelivery(NamedTuple):
    """A message that an endpoint has not received yet."""

    id: str
    subscription_id: str
    account_id: str
    attempts: int
    created_at: int
    publication: Publication | None
    """None for a request to confirm the subscription."""


MAX_MESSAGE_BYTES: Final = 240 * 1024
"""The most bytes of a message with subject and attributes as JSON; its envelope fits in a message
of a queue."""
MAX_ATTRIBUTES: Final = 20
MAX_ATTRIBUTE_BYTES: Final = 1024
MAX_FILTER_VALUES: Final = 150
MAX_BACKLOG: Final = 10_000
"""How many deliveries may wait for one subscription; beyond that, the oldest fail."""
MAX_BACKLOG_BYTES: Final = 256 * 1024 * 1024
"""Bytes of the messages that wait for one subscription."""
SUBSCRIPTIONS: Final = Quota("subscriptions", 1000, "subscriptions to a topic", per="topic")
WAITING_DELIVERIES: Final = Quota("waiting_deliveries", 200_000, "deliveries that wait")
"""How many deliveries may wait for all subscriptions of an account; beyond that, nothing is
published."""
WAITING_BYTES: Final = Quota(
    "waiting_bytes", 1 << 30, "bytes of the messages that wait for delivery", unit="bytes"
)
PUBLISHED_MESSAGES: Final = Quota(
    "published_messages", 5_000, "messages and events that are not yet deliveries"
)
"""Beyond that, nothing is published."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,255}")
_ATTRIBUTE: Final = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Includes the separators of lines and paragraphs, which no header of a mail may have."""
_MAILBOX: Final = re.compile(
    r"(?P<local>[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*)"
    r"@(?P<domain>[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
    r"(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*)"
)
_MAX_LOCAL: Final = 64
_MAX_MAILBOX: Final = 254


class TopicMissing(NotFound):
    """The topic does not exist, or is another account's."""

    def __init__(self) -> None:
        super().__init__("there is no such topic")


class SubscriptionMissing(NotFound):
    """The subscription does not exist, or belongs to another topic."""

    def __init__(self) -> None:
        super().__init__("there is no such subscription")


def check_topic_name(name: str) -> None:
    """Raise `InvalidInput` for a malformed topic name; a valid one never looks like an id."""
    if _NAME.fullmatch(name) is None or parse_uuid(name) is not None:
        raise invalid_field(
            "name", "1 to 256 of a-z A-Z 0-9 . _ -, begins with a letter or digit and is no UUID"
        )


def check_message(message: str, subject: str | None, attributes: Mapping[str, str]) -> None:
    """Raise `InvalidInput` if a message is too long, or has a malformed subject or attribute."""
    size = len(msgspec.json.encode([message, subject, attributes, attributes]))
    if size > MAX_MESSAGE_BYTES:
        raise invalid_field(
            "message",
            f"as JSON, with subject and attributes, at most {MAX_MESSAGE_BYTES} bytes, not {size}",
            "out_of_range",
        )
    if subject is not None and _CONTROL.search(subject):
        raise invalid_field("subject", "one line without control characters")
    if len(attributes) > MAX_ATTRIBUTES:
        raise invalid_field("attributes", f"at most {MAX_ATTRIBUTES}", "out_of_range")
    for name, value in attributes.items():
        if not _ATTRIBUTE.fullmatch(name) or len(value.encode()) > MAX_ATTRIBUTE_BYTES:
            raise invalid_field(
                "attributes",
                "a name is 1 to 256 of a-z A-Z 0-9 _ . -, and a value at most "
                f"{MAX_ATTRIBUTE_BYTES} bytes: {name[:256]!a}",
            )


def message_size(message: Publication) -> int:
    """Return the stored size of a message with its attributes, in bytes."""
    texts = (message.message, *message.attributes, *message.attributes.values())
    return sum(len(each.encode()) for each in texts)


def check_filter(policy: FilterPolicy) -> None:
    """Raise `InvalidInput` for a filter with a malformed attribute name, or too many values."""
    for name in policy:
        if not _ATTRIBUTE.fullmatch(name):
            raise invalid_field(
                "filter_policy", "a name is 1 to 256 of a-z A-Z 0-9 _ . -: " + f"{name[:256]!a}"
            )
    if sum(map(len, policy.values())) > MAX_FILTER_VALUES:
        raise invalid_field(
            "filter_policy", f"at most {MAX_FILTER_VALUES} values in all", "out_of_range"
        )


def check_raw(protocol: Protocol, *, is_raw: bool) -> None:
    """Raise `InvalidInput` if raw delivery is requested, but the protocol is not a webhook's."""
    if is_raw and protocol not in WEBHOOKS:
        raise invalid_field(
            "raw_message_delivery",
            "only http and https; others always get the envelope",
            "not_allowed",
        )


def matches(policy: FilterPolicy, attributes: Mapping[str, str]) -> bool:
    """Return True if each attribute that a filter names has one of the filter's values."""
    return all(attributes.get(name) in values for name, values in policy.items())


def mailbox(endpoint: str) -> str:
    """Return an e-mail address with its domain in lower case.

    Raise `InvalidInput` if the text is not an e-mail address.
    """
    found = _MAILBOX.fullmatch(endpoint) if len(endpoint) <= _MAX_MAILBOX else None
    # The mail library would decode an encoded word (RFC 2047) in a header: to another mailbox.
    if found is None or len(found["local"]) > _MAX_LOCAL or "=?" in found["local"]:
        raise bad_endpoint("write it as name@example.com", "malformed")
    return f"{found['local']}@{found['domain'].lower()}"


def webhook_url(protocol: Protocol, destination: Destination) -> str:
    """Return the URL of a destination, with its host in lower case and no default port.

    Raise `InvalidInput` if the URL's scheme is not `protocol`.
    """
    if destination.scheme != protocol:
        raise bad_endpoint(f"it must begin with {protocol}://, as the protocol", "wrong_scheme")
    return destination.origin + destination.target


def bad_endpoint(words: str, reason: str) -> InvalidInput:
    """Return the error for an endpoint that cannot be subscribed."""
    return invalid_field("endpoint", words, reason)


def strings_of(data: Mapping[str, object]) -> dict[str, str]:
    """Return an event's attributes: the texts in its data, and the names of references.

    Values too long for an attribute are left out.
    """
    found: dict[str, str] = {}
    for name, value in data.items():
        text = value.get("name") if isinstance(value, Mapping) else value
        if isinstance(text, str) and len(text.encode()) <= MAX_ATTRIBUTE_BYTES:
            found[name] = text
    return found


class Topic(Record, frozen=True, kw_only=True):
    """A topic, to which messages and events are published."""

    name: Annotated[
        str,
        Meta(min_length=1, max_length=256),
        fixed("1 to 256 of a-z A-Z 0-9 . _ -; fixed", heading="NAME"),
    ]
    description: Annotated[
        str,
        Meta(max_length=1000),
        given('for persons; "" takes it away', heading="DESCRIPTION"),
    ] = ""
    tags: Annotated[dict[str, str], given("a tag of the topic")] = field(default_factory=dict)
    delivery_policy: Annotated[Settings, own(hidden=True)] = field(default_factory=dict)
    """The retry settings for its subscriptions, which they may override; empty if none are set."""

    @property
    def crn(self) -> str:
        """Return the topic's CRN."""
        return TOPIC.crn_of(self)


TOPIC: Final = Resource(
    record=Topic,
    service="notifications",
    one="topic",
    many="topics",
    check_key=check_topic_name,
    filters=(Filter("name"),),
    methods=("create", "list", "get", "update"),
    actions={"delete": "DeleteTopic"},
    more_actions=(
        "DeleteSubscription",
        "GetSigningSecret",
        "GetSubscription",
        "ListSubscriptions",
        "Publish",
        "ResendConfirmation",
        "RotateSigningSecret",
        "Subscribe",
        "UpdateSubscription",
    ),
    summaries={"notifications:Publish": "Publish to a topic; also to create an event rule for it."},
    methods_with_events=("create", "delete"),
)


class Subscription(Record, frozen=True, kw_only=True):
    """A subscription of an endpoint to a topic."""

    topic_id: Annotated[str, own(hidden=True)]
    protocol: Annotated[Protocol, fixed()]
    endpoint: Annotated[str, fixed()]
    """For a queue, its CRN."""
    status: Annotated[Status, own()]
    filter_policy: Annotated[dict[str, list[str]], given()] = field(default_factory=dict)
    raw_message_delivery: Annotated[bool, given()] = False
    confirmation_expires_at: Annotated[int | None, own(form="time", shows_null=True)] = None
    """Null once it is confirmed."""
    faults: Annotated[tuple[Fault, ...], own()] = ()
    delivery_policy: Annotated[Settings, own(hidden=True)] = field(default_factory=dict)
    dead_letter_queue: Annotated[str | None, own(hidden=True)] = None
    """The CRN of the queue."""
    signing_secret: Annotated[bytes | None, own(hidden=True)] = None
    """Sealed; webhooks only."""
    previous_secret: Annotated[bytes | None, own(hidden=True)] = None
    """Sealed; it also signs until `previous_until`."""
    previous_until: Annotated[int | None, own(form="time", hidden=True)] = None
    confirmation_nonce: Annotated[str | None, own(hidden=True)] = None
    """The nonce from which, with the root key, the token is derived."""
    confirmation_hash: Annotated[bytes | None, own(hidden=True)] = None
    """SHA-256 of the token."""
    active_since: Annotated[int | None, own(form="time", hidden=True)] = None
    """Messages published from this time on are delivered; None until it is confirmed."""


SUBSCRIPTION: Final = Resource(
    record=Subscription,
    service="notifications",
    one="subscription",
    many="subscriptions",
    key="id",
    # The routes are written by hand: rights are those on the topic; a second request to subscribe
    # an endpoint finds the first subscription; and a change resolves queues in its transaction.
    methods=(),
    methods_with_events=(),
    warnings=frozenset({"ENDPOINT_FAILED", "ENDPOINT_TIMEOUT", "ENDPOINT_UNREACHABLE"}),
)

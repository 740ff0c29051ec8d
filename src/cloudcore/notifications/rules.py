"""What topics, messages and subscriptions may be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from cloudcore.errors import InvalidInput, NotFound
from cloudcore.notifications.records import WEBHOOKS, FilterPolicy, Protocol, Publication
from cloudcore.outbound.destinations import Destination
from cloudcore.uuids import parse_uuid

MAX_MESSAGE_BYTES: Final = 240 * 1024
"""Of a message with subject and attributes as JSON: its envelope fits in a message of a queue."""
MAX_ATTRIBUTES: Final = 20
MAX_ATTRIBUTE_BYTES: Final = 1024
MAX_FILTER_VALUES: Final = 150
MAX_BACKLOG: Final = 10_000
"""Deliveries that wait for one subscription; then those that are due longest fail."""
MAX_BACKLOG_BYTES: Final = 256 * 1024 * 1024
"""Bytes of the messages that wait for one subscription."""
MAX_DELIVERIES: Final = 200_000
"""Deliveries that wait for the subscriptions of an account; then nothing is published."""
MAX_DELIVERY_BYTES: Final = 1024 * 1024 * 1024
"""Bytes of the messages that wait for the subscriptions of an account."""
MAX_UNSORTED: Final = 5_000
"""Messages and events of an account that are not yet deliveries; then nothing is published."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,255}")
_ATTRIBUTE: Final = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Also the separators of lines and paragraphs: no header of a mail can hold them."""
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
    """The subscription does not exist, or is of another topic."""

    def __init__(self) -> None:
        super().__init__("there is no such subscription")


def is_topic_name(name: str) -> bool:
    """Return True if a topic can have this name; it never looks like an id."""
    return _NAME.fullmatch(name) is not None and parse_uuid(name) is None


def check_topic_name(name: str) -> None:
    """Refuse a malformed name."""
    if not is_topic_name(name):
        raise InvalidInput(
            "name: 1 to 256 of a-z A-Z 0-9 . _ -, begins with a letter or digit and is no UUID",
            field="name",
            reason="malformed",
        )


def check_message(message: str, subject: str | None, attributes: Mapping[str, str]) -> None:
    """Refuse a message that is too long, or a subject or an attribute that is no plain text."""
    size = len(msgspec.json.encode([message, subject, attributes, attributes]))
    if size > MAX_MESSAGE_BYTES:
        raise InvalidInput(
            f"message: as JSON, with subject and attributes, at most {MAX_MESSAGE_BYTES} bytes, not"
            f" {size}",
            field="message",
            reason="out_of_range",
        )
    if subject is not None and _CONTROL.search(subject):
        raise InvalidInput(
            "subject: one line without control characters", field="subject", reason="malformed"
        )
    if len(attributes) > MAX_ATTRIBUTES:
        raise InvalidInput(
            f"attributes: at most {MAX_ATTRIBUTES}", field="attributes", reason="out_of_range"
        )
    for name, value in attributes.items():
        if not _ATTRIBUTE.fullmatch(name) or len(value.encode()) > MAX_ATTRIBUTE_BYTES:
            raise InvalidInput(
                "attributes: a name is 1 to 256 of a-z A-Z 0-9 _ . -, and a value at most "
                f"{MAX_ATTRIBUTE_BYTES} bytes: {name[:256]!a}",
                field="attributes",
                reason="malformed",
            )


def message_size(message: Publication) -> int:
    """Return the bytes of a message with its attributes, as they are stored."""
    texts = (message.message, *message.attributes, *message.attributes.values())
    return sum(len(each.encode()) for each in texts)


def check_filter(policy: FilterPolicy) -> None:
    """Refuse a filter with a name that no attribute can have, or with too many values."""
    for name in policy:
        if not _ATTRIBUTE.fullmatch(name):
            raise InvalidInput(
                "filter_policy: a name is 1 to 256 of a-z A-Z 0-9 _ . -: " + f"{name[:256]!a}",
                field="filter_policy",
                reason="malformed",
            )
    if sum(map(len, policy.values())) > MAX_FILTER_VALUES:
        raise InvalidInput(
            f"filter_policy: at most {MAX_FILTER_VALUES} values in all",
            field="filter_policy",
            reason="out_of_range",
        )


def check_raw(protocol: Protocol, *, is_raw: bool) -> None:
    """Refuse raw delivery unless the protocol is that of a webhook."""
    if is_raw and protocol not in WEBHOOKS:
        raise InvalidInput(
            "raw_message_delivery: only http and https; others always get the envelope",
            field="raw_message_delivery",
            reason="not_allowed",
        )


def matches(policy: FilterPolicy, attributes: Mapping[str, str]) -> bool:
    """Return True if for each name of a filter the message's attribute has one of its values."""
    return all(attributes.get(name) in values for name, values in policy.items())


def mailbox(endpoint: str) -> str:
    """Return an e-mail address with its domain in lower case.

    Raises:
        InvalidInput: the text is not an e-mail address.

    """
    found = _MAILBOX.fullmatch(endpoint) if len(endpoint) <= _MAX_MAILBOX else None
    # An encoded word (RFC 2047) would be decoded in the head of a mail: to another mailbox.
    if found is None or len(found["local"]) > _MAX_LOCAL or "=?" in found["local"]:
        raise bad_endpoint("write it as name@example.com", "malformed")
    return f"{found['local']}@{found['domain'].lower()}"


def webhook_url(protocol: Protocol, destination: Destination) -> str:
    """Return the URL of a destination, with its host in lower case and no default port.

    Raises:
        InvalidInput: its scheme is not the protocol.

    """
    if destination.scheme != protocol:
        raise bad_endpoint(f"it must begin with {protocol}://, as the protocol", "wrong_scheme")
    return destination.origin + destination.target


def bad_endpoint(words: str, reason: str) -> InvalidInput:
    """Return the error for an endpoint that cannot be subscribed."""
    return InvalidInput(f"endpoint: {words}", field="endpoint", reason=reason)


def strings_of(data: Mapping[str, object]) -> dict[str, str]:
    """Return the attributes of an event: members that are texts, and names of references.

    What is too long for an attribute is left out.
    """
    found: dict[str, str] = {}
    for name, value in data.items():
        text = value.get("name") if isinstance(value, Mapping) else value
        if isinstance(text, str) and len(text.encode()) <= MAX_ATTRIBUTE_BYTES:
            found[name] = text
    return found

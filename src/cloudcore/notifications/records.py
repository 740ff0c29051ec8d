"""What the rows of notifications are in memory, and how their JSON columns are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from cloudcore.jobs.faults import Fault

Protocol = Literal["email", "http", "https", "queue"]
Status = Literal["pending_confirmation", "confirmed"]
FilterPolicy = Mapping[str, Sequence[str]]
Settings = Mapping[str, Any]
"""The fields of a delivery policy that are set; see `delivery_policy.DeliveryPolicy`."""
WEBHOOKS: Final = frozenset({"http", "https"})


class Subscription(NamedTuple):
    """A subscription to a topic; its secrets are sealed."""

    id: str
    topic_id: str
    account_id: str
    protocol: Protocol
    endpoint: str
    """Normalized; of a queue its CRN."""
    status: Status
    filter_policy: FilterPolicy
    raw_message_delivery: bool
    delivery_policy: Settings
    created_at: int
    updated_at: int
    active_since: int | None
    """Messages published from then on are delivered; None until it is confirmed."""
    signing_secret: bytes | None
    previous_secret: bytes | None = None
    previous_until: int | None = None
    """Until then the previous secret signs too."""
    confirmation_nonce: str | None = None
    confirmation_hash: bytes | None = None
    confirmation_until: int | None = None
    dead_letter_queue: str | None = None
    """CRN."""
    faults: Sequence[Fault] = ()

    @property
    def is_webhook(self) -> bool:
        """Return True if it is delivered to over HTTP."""
        return self.protocol in WEBHOOKS


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


class Delivery(NamedTuple):
    """A message that an endpoint has not got yet."""

    id: str
    subscription_id: str
    account_id: str
    attempts: int
    created_at: int
    publication: Publication | None
    """None for a request to confirm the subscription."""


def encoded(value: object) -> str:
    """Return a value as JSON text."""
    return msgspec.json.encode(value).decode()

"""What the rows of notifications are in memory, and how their JSON columns are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

Protocol = Literal["email", "http", "https", "queue"]
Status = Literal["pending_confirmation", "confirmed"]
FilterPolicy = Mapping[str, Sequence[str]]
Settings = Mapping[str, Any]
"""The fields of a delivery policy that are set; see `delivery_policy.DeliveryPolicy`."""
WEBHOOKS: Final = frozenset({"http", "https"})


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

"""What a subscription to a topic is."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import field

from cloudcore.jobs.faults import Fault
from cloudcore.notifications.records import WEBHOOKS, Protocol, Settings, Status
from cloudcore.resources.record import Record, fixed, given, own
from cloudcore.resources.resource import Resource


class Subscription(Record, frozen=True, kw_only=True):
    """A subscription, without its topic and its secret."""

    topic_id: Annotated[str, own(hidden=True)]
    protocol: Annotated[Protocol, fixed()]
    endpoint: Annotated[str, fixed()]
    """Of a queue its CRN."""
    status: Annotated[Status, own()]
    filter_policy: Annotated[dict[str, list[str]], given()] = field(default_factory=dict)
    raw_message_delivery: Annotated[bool, given()] = False
    confirmation_expires_at: Annotated[int | None, own(form="time", shows_null=True)] = None
    """Null once it is confirmed."""
    faults: Annotated[tuple[Fault, ...], own()] = ()
    delivery_policy: Annotated[Settings, own(hidden=True)] = field(default_factory=dict)
    dead_letter_queue: Annotated[str | None, own(hidden=True)] = None
    """CRN."""
    signing_secret: Annotated[bytes | None, own(hidden=True)] = None
    """Sealed; webhooks only."""
    previous_secret: Annotated[bytes | None, own(hidden=True)] = None
    """Sealed; signs too until `previous_until`."""
    previous_until: Annotated[int | None, own(form="time", hidden=True)] = None
    confirmation_nonce: Annotated[str | None, own(hidden=True)] = None
    """The token is derived from it and the root key."""
    confirmation_hash: Annotated[bytes | None, own(hidden=True)] = None
    """SHA-256 of the token."""
    active_since: Annotated[int | None, own(form="time", hidden=True)] = None
    """Messages published from then on are delivered; None until it is confirmed."""

    @property
    def is_webhook(self) -> bool:
        """Return True if it is delivered to over HTTP."""
        return self.protocol in WEBHOOKS


SUBSCRIPTION: Final = Resource(
    record=Subscription,
    service="notifications",
    one="subscription",
    many="subscriptions",
    key="id",
    # By hand: it is below a topic, on which its rights are; a second request to subscribe an
    # endpoint finds the first; and it names queues of which the transaction must see no other.
    methods=(),
    told=(),
    warnings=frozenset({"ENDPOINT_FAILED", "ENDPOINT_TIMEOUT", "ENDPOINT_UNREACHABLE"}),
)

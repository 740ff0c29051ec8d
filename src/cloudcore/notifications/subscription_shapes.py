"""The bodies of subscriptions: requests and answers."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType, field

from cloudcore.notifications.delivery_policy import DeliveryPolicy, shown
from cloudcore.notifications.records import Protocol, Status
from cloudcore.notifications.rules import check_raw
from cloudcore.notifications.subscription import Subscription
from cloudcore.notifications.tables import SUBSCRIPTION_ROWS
from cloudcore.resources.bodies import Composite
from cloudcore.resources.methods import Methods
from cloudcore.uuids import Uuid
from cloudcore.wire import RFC3339, RequestBody, ResponseBody

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


def _checked(new: Subscription, _old: Subscription | None, _now: int) -> Subscription:
    check_raw(new.protocol, is_raw=new.raw_message_delivery)
    return new


def _dead_letters(found: Subscription) -> DeadLetters | None:
    queue = found.dead_letter_queue
    return None if queue is None else DeadLetters(dead_letter_queue=queue)


SUBSCRIPTIONS: Final = Methods(
    SUBSCRIPTION_ROWS,
    check=_checked,
    composites=(
        Composite(
            name="redrive_policy",
            given=DeadLetters,
            shown=DeadLetters,
            show=_dead_letters,
        ),
        Composite(
            name="delivery_policy",
            words="Only the fields that are set here.",
            given=DeliveryPolicy,
            shown=DeliveryPolicy,
            show=lambda found: shown(found.delivery_policy),
        ),
    ),
)


class NewSubscription(SUBSCRIPTIONS.bodies.one, kw_only=True):  # type: ignore[call-arg,misc,name-defined] # made at run time
    """A subscription, wrapped; a webhook that is new comes with its secret."""

    signing_secret: str | UnsetType = UNSET
    """Shown when a webhook is first created; also see ``…/signing-secret``."""


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

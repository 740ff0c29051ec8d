"""The subscriptions to topics: their rows, and the bodies of requests and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
import sqlalchemy as sa
from msgspec import UNSET, Meta, UnsetType, field, structs

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.db.rows import count, first, given, json_text
from cloudcore.db.schema import ByteOrdered, Id, one_of
from cloudcore.db.statement import Statement, paged
from cloudcore.jobs.faults import Fault
from cloudcore.notifications.delivery_policy import DeliveryPolicy, shown
from cloudcore.notifications.topic import (
    SUBSCRIPTION,
    Protocol,
    Subscription,
    SubscriptionMissing,
    Topic,
    check_raw,
)
from cloudcore.notifications.topics import ROWS as TOPICS
from cloudcore.resources.bodies import Composite
from cloudcore.resources.methods import Methods
from cloudcore.resources.rows import Rows
from cloudcore.wire import RFC3339, RequestBody, ResponseBody

SUBSCRIPTION_ROWS: Final = Rows(
    SUBSCRIPTION,
    sa.ForeignKeyConstraint(["topic_id"], ["topics.id"], ondelete="CASCADE"),
    one_of("protocol", "email", "http", "https", "queue"),
    one_of("status", "pending_confirmation", "confirmed"),
    sa.CheckConstraint("status = 'confirmed' OR protocol <> 'queue'", name="queue_status"),
    sa.CheckConstraint(
        "(protocol IN ('http', 'https')) = (signing_secret IS NOT NULL)", name="signing_secret"
    ),
    sa.CheckConstraint(
        "(previous_secret IS NULL) = (previous_until IS NULL)", name="previous_secret"
    ),
    sa.CheckConstraint(
        "(confirmation_hash IS NULL) = (confirmation_expires_at IS NULL)",
        name="confirmation_expires_at",
    ),
    sa.CheckConstraint(
        "(confirmation_hash IS NULL) = (status = 'confirmed')", name="confirmation_hash"
    ),
    sa.CheckConstraint("(active_since IS NULL) = (status <> 'confirmed')", name="active_since"),
    sa.UniqueConstraint("confirmation_hash"),
    sa.Index("ix_subscriptions_topic_id_id", "topic_id", "id"),
    unique=sa.UniqueConstraint("topic_id", "protocol", "endpoint"),
    types={
        "topic_id": Id,
        "protocol": sa.String(8),
        "endpoint": ByteOrdered,
        "status": sa.String(24),
        "dead_letter_queue": ByteOrdered,
        "confirmation_nonce": ByteOrdered,
    },
    missing=SubscriptionMissing,
)


FAULT_SECONDS: Final = 7 * 24 * 3600
"""A fault that nothing clears is shown for this long."""

_s = SUBSCRIPTION_ROWS.table.c
_OF_TOPIC: Final = given(_s.account_id, _s.topic_id)
_IS_OURS: Final = given(_s.id, _s.account_id)
_FIND_SAME: Final = Statement(
    SUBSCRIPTION_ROWS.columns.where(_OF_TOPIC, given(_s.protocol, _s.endpoint))
)
_FIND_WITH_TOPIC: Final = Statement(
    TOPICS.columns.add_columns(*SUBSCRIPTION_ROWS.columns.selected_columns)
    .join(SUBSCRIPTION_ROWS.table, TOPICS.table.c.id == _s.topic_id)
    .where(_IS_OURS)
)
_LOCK_CONFIRMED_BY: Final = Statement(
    SUBSCRIPTION_ROWS.columns.where(given(_s.confirmation_hash)).with_for_update()
)
_LIST: Final = paged(
    SUBSCRIPTION_ROWS.columns.where(_OF_TOPIC, _s.id > sa.bindparam("after")).order_by(_s.id)
)
_LIST_ACTIVE: Final = paged(
    sa.select(_s.id, _s.filter_policy)
    .where(
        _OF_TOPIC, _s.active_since <= sa.bindparam("published_at"), _s.id > sa.bindparam("after")
    )
    .order_by(_s.id)
)
_IS_HEARD: Final = Statement(first(sa.select(_s.id).where(_OF_TOPIC, _s.active_since.is_not(None))))
_COUNT: Final = Statement(
    sa.select(sa.func.count()).select_from(SUBSCRIPTION_ROWS.table).where(_OF_TOPIC)
)
_SAVE_FAULTS: Final = Statement(
    SUBSCRIPTION_ROWS.table.update().where(_IS_OURS).values(faults=sa.bindparam("faults"))
)


def find_same(
    tx: Connection, account_id: str, topic_id: str, protocol: Protocol, endpoint: str
) -> Subscription | None:
    """Return the subscription of an endpoint to a topic, or None if there is none."""
    of = {"account_id": account_id, "topic_id": topic_id}
    return SUBSCRIPTION_ROWS.read_one(tx, _FIND_SAME, **of, protocol=protocol, endpoint=endpoint)


def find_with_topic(
    tx: Connection, account_id: str, subscription_id: str
) -> tuple[Subscription, Topic] | None:
    """Return a subscription and its topic, or None if there is no such subscription."""
    row = tx.row(_FIND_WITH_TOPIC, account_id=account_id, id=subscription_id)
    if row is None:
        return None
    end = TOPICS.width
    return SUBSCRIPTION_ROWS.record_of(row[end:]), TOPICS.record_of(row[:end])


def lock_confirmed_by(tx: Connection, token_hash: bytes) -> Subscription | None:
    """Return the subscription whose confirmation token has this hash, or None.

    The subscription is locked until `tx` ends.
    """
    return SUBSCRIPTION_ROWS.read_one(tx, _LOCK_CONFIRMED_BY, confirmation_hash=token_hash)


def list_subscriptions(
    tx: Connection, account_id: str, topic_id: str, after: str, limit: int
) -> Sequence[Subscription]:
    """Return a page of the subscriptions to a topic, oldest first."""
    of = {"account_id": account_id, "topic_id": topic_id}
    return SUBSCRIPTION_ROWS.read_all(tx, _LIST, **of, after=after, limit=limit)


def list_active(
    tx: Connection, account_id: str, topic_id: str, published_at: int, after: str, limit: int
) -> list[tuple[str, dict[str, list[str]]]]:
    """Return (id, filter) of a page of the subscriptions that were active at `published_at`.

    The page begins after the id `after`, and has up to `limit` subscriptions.
    """
    of = {"account_id": account_id, "topic_id": topic_id, "published_at": published_at}
    rows = tx.rows(_LIST_ACTIVE, **of, after=after, limit=limit)
    return [(row[0], msgspec.json.decode(row[1])) for row in rows]


def has_active_subscription(tx: Connection, account_id: str, topic_id: str) -> bool:
    """Return True if a topic has an active subscription."""
    return tx.row(_IS_HEARD, account_id=account_id, topic_id=topic_id) is not None


def count_subscriptions(tx: Connection, account_id: str, topic_id: str) -> int:
    """Count the subscriptions to a topic."""
    return count(tx, _COUNT, account_id=account_id, topic_id=topic_id)


def save_faults(
    tx: Connection, account_id: str, subscription_id: str, faults: Sequence[Fault]
) -> None:
    """Store the faults of a subscription, in place of the previous ones."""
    tx.execute(
        _SAVE_FAULTS, account_id=account_id, id=subscription_id, faults=json_text(list(faults))
    )


def remove_subscription(tx: Connection, account_id: str, subscription_id: str) -> bool:
    """Delete a subscription with its deliveries; return False if it does not exist."""
    remove = SUBSCRIPTION_ROWS.statements["remove"]
    return tx.execute(remove, of_id=subscription_id, account_id=account_id) == 1


MAX_ENDPOINT: Final = 2048
"""PostgreSQL indexes no text of more than 2,704 bytes, and an endpoint is in a unique index."""
_Value = Annotated[str, Meta(max_length=1024)]
GivenFilter = dict[str, Annotated[list[_Value], Meta(min_length=1, max_length=150)]]


class DeadLetters(RequestBody):
    """The queue for messages whose last attempt has failed."""

    dead_letter_queue: Annotated[str, Meta(min_length=1, max_length=600)]
    """The name, id or CRN of a queue of the account; answers have the CRN."""


class Subscribe(RequestBody):
    """A new subscription; its protocol and endpoint are fixed."""

    protocol: Protocol
    endpoint: Annotated[str, Meta(min_length=1, max_length=MAX_ENDPOINT)]
    """An e-mail address; a URL that begins with the protocol; or the name, id or CRN of a queue."""
    filter_policy: GivenFilter = field(default_factory=dict)
    """Accepted values by the name of an attribute; all names must match. Empty: every message."""
    redrive_policy: DeadLetters | None = None
    raw_message_delivery: bool = False
    """Post the message itself instead of the envelope; webhooks only."""
    delivery_policy: DeliveryPolicy | None = None
    """Overrides the topic's, field by field."""


class UpdateSubscription(RequestBody):
    """The fields to change; each is replaced whole."""

    filter_policy: GivenFilter | UnsetType | None = UNSET
    """Empty: every message."""
    redrive_policy: DeadLetters | UnsetType | None = UNSET
    raw_message_delivery: bool | UnsetType | None = UNSET
    delivery_policy: DeliveryPolicy | UnsetType | None = UNSET


def current(faults: Sequence[Fault], now: int) -> list[Fault]:
    """Return the faults that are recent enough to show."""
    return [each for each in faults if each.last_at > now - FAULT_SECONDS * MICROSECONDS]


def _as_of(found: Subscription, now: int) -> Subscription:
    return structs.replace(found, faults=tuple(current(found.faults, now)))


def _checked(new: Subscription, _old: Subscription | None, _now: int) -> Subscription:
    check_raw(new.protocol, is_raw=new.raw_message_delivery)
    return new


def _dead_letters(found: Subscription) -> DeadLetters | None:
    queue = found.dead_letter_queue
    return None if queue is None else DeadLetters(dead_letter_queue=queue)


SUBSCRIPTIONS: Final = Methods(
    SUBSCRIPTION_ROWS,
    as_of=_as_of,
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


class NewSubscription(SUBSCRIPTIONS.answers.one_type, kw_only=True):  # type: ignore[call-arg,misc,name-defined] # made at run time
    """A subscription in an answer; a new webhook comes with its signing secret."""

    signing_secret: str | UnsetType = UNSET
    """Shown when a webhook is first created; also see ``…/signing-secret``."""


class SigningSecret(ResponseBody):
    """The secrets that sign the deliveries to a webhook."""

    signing_secret: str
    previous_signing_secret: str | None
    """It also signs until `previous_expires_at`."""
    previous_expires_at: RFC3339 | None

"""The tables of subscriptions, missing topics, and what is still to be delivered."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from cloudcore.db.schema import ByteOrdered, Id, Moment, metadata
from cloudcore.notifications.rules import SubscriptionMissing
from cloudcore.notifications.subscription import SUBSCRIPTION
from cloudcore.resources.rows import Rows, one_of

# A topic that something names though it does not exist: it was deleted, or never created.
missing_topics = Table(
    "missing_topics",
    metadata,
    Column("account_id", Id, ForeignKey("accounts.id"), primary_key=True),
    Column("crn", ByteOrdered, primary_key=True),
    Column("first_at", Moment, nullable=False),
    Column("last_at", Moment, nullable=False),
    Column("events", BigInteger, nullable=False),  # that were told to it meanwhile
    Index("ix_missing_topics_last_at", "last_at"),
)

# Events told to a topic that does not exist; delivered when it does.
waiting_events = Table(
    "waiting_events",
    metadata,
    Column("event_id", Id, primary_key=True),
    Column("crn", ByteOrdered, primary_key=True),  # of the topic
    Column("account_id", Id, ForeignKey("accounts.id"), nullable=False),
    Column("type", ByteOrdered, nullable=False),
    Column("payload", Text, nullable=False),
    Column("created_at", Moment, nullable=False),
    Index("ix_waiting_events_topic", "account_id", "crn", "event_id"),
    Index("ix_waiting_events_created_at", "created_at"),
)

SUBSCRIPTION_ROWS: Final = Rows(
    SUBSCRIPTION,
    ForeignKeyConstraint(["topic_id"], ["topics.id"], ondelete="CASCADE"),
    one_of("protocol", "email", "http", "https", "queue"),
    one_of("status", "pending_confirmation", "confirmed"),
    CheckConstraint("status = 'confirmed' OR protocol <> 'queue'", name="queue_status"),
    CheckConstraint(
        "(protocol IN ('http', 'https')) = (signing_secret IS NOT NULL)", name="signing_secret"
    ),
    CheckConstraint("(previous_secret IS NULL) = (previous_until IS NULL)", name="previous_secret"),
    CheckConstraint(
        "(confirmation_hash IS NULL) = (confirmation_expires_at IS NULL)",
        name="confirmation_expires_at",
    ),
    CheckConstraint(
        "(confirmation_hash IS NULL) = (status = 'confirmed')", name="confirmation_hash"
    ),
    CheckConstraint("(active_since IS NULL) = (status <> 'confirmed')", name="active_since"),
    UniqueConstraint("confirmation_hash"),
    Index("ix_subscriptions_topic_id_id", "topic_id", "id"),
    unique=UniqueConstraint("topic_id", "protocol", "endpoint"),
    types={
        "topic_id": Id,
        "protocol": String(8),
        "endpoint": ByteOrdered,
        "status": String(24),
        "dead_letter_queue": ByteOrdered,
        "confirmation_nonce": ByteOrdered,
    },
    missing=SubscriptionMissing,
)
publications = Table(
    "publications",
    metadata,
    Column("id", Id, primary_key=True),
    Column("topic_id", Id, ForeignKey("topics.id", ondelete="CASCADE"), nullable=False),
    Column("account_id", Id, ForeignKey("accounts.id"), nullable=False),
    Column("subject", Text),
    Column("message", Text, nullable=False),
    Column("attributes", Text, nullable=False),  # a JSON object
    Column("published_at", Moment, nullable=False),
    Column("ended_at", Moment),  # when its deliveries had been inserted
    Column("content_type", Text),
    Index("ix_publications_topic_id", "topic_id"),
    Index("ix_publications_ended_at", "ended_at"),
)

# A row is deleted when the endpoint has the message, or the last attempt has failed.
deliveries = Table(
    "deliveries",
    metadata,
    Column("id", Id, primary_key=True),
    Column("account_id", Id, ForeignKey("accounts.id"), nullable=False),
    Column(
        "subscription_id", Id, ForeignKey("subscriptions.id", ondelete="CASCADE"), nullable=False
    ),
    # null: a request to confirm the subscription
    Column("publication_id", Id, ForeignKey("publications.id", ondelete="CASCADE")),
    Column("size", Integer, nullable=False, server_default=text("0")),  # the message's bytes
    Column("attempts", Integer, nullable=False),
    Column("due_at", Moment, nullable=False),
    Column("created_at", Moment, nullable=False),
    UniqueConstraint("publication_id", "subscription_id"),
    Index("ix_deliveries_due", "subscription_id", "due_at", "size"),
)

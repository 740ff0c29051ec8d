"""The tables of subscriptions, missing topics, and what is still to be delivered."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from cloudcore.db.schema import ByteOrdered, Id, Moment, metadata

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

subscriptions = Table(
    "subscriptions",
    metadata,
    Column("id", Id, primary_key=True),
    Column("topic_id", Id, ForeignKey("topics.id", ondelete="CASCADE"), nullable=False),
    Column("account_id", Id, ForeignKey("accounts.id"), nullable=False),
    Column("protocol", String(8), nullable=False),
    Column("endpoint", ByteOrdered, nullable=False),  # normalized; of a queue its CRN
    Column("status", String(24), nullable=False),
    Column("filter_policy", Text, nullable=False),  # a JSON object, maybe empty
    Column("dead_letter_queue", ByteOrdered),  # CRN
    Column("raw_message_delivery", Boolean, nullable=False),
    Column("delivery_policy", Text, nullable=False),  # a JSON object, maybe empty
    Column("signing_secret", LargeBinary),  # sealed; webhooks only
    Column("previous_secret", LargeBinary),  # sealed; signs too until `previous_until`
    Column("previous_until", Moment),
    Column("confirmation_nonce", ByteOrdered),  # the token is derived from it and the root key
    Column("confirmation_hash", LargeBinary),  # SHA-256 of the token
    Column("confirmation_until", Moment),
    Column("active_since", Moment),  # when it was confirmed; null until then
    Column("faults", Text, nullable=False),  # a JSON array
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    CheckConstraint("protocol IN ('email', 'http', 'https', 'queue')", name="protocol"),
    CheckConstraint("status IN ('pending_confirmation', 'confirmed')", name="status"),
    CheckConstraint("status = 'confirmed' OR protocol <> 'queue'", name="queue_status"),
    CheckConstraint(
        "(protocol IN ('http', 'https')) = (signing_secret IS NOT NULL)", name="signing_secret"
    ),
    CheckConstraint("(previous_secret IS NULL) = (previous_until IS NULL)", name="previous_secret"),
    CheckConstraint(
        "(confirmation_hash IS NULL) = (confirmation_until IS NULL)", name="confirmation_until"
    ),
    CheckConstraint(
        "(confirmation_hash IS NULL) = (status = 'confirmed')", name="confirmation_hash"
    ),
    CheckConstraint("(active_since IS NULL) = (status <> 'confirmed')", name="active_since"),
    UniqueConstraint("topic_id", "protocol", "endpoint"),
    UniqueConstraint("confirmation_hash"),
    Index("ix_subscriptions_topic_id_id", "topic_id", "id"),
    Index("ix_subscriptions_account_id", "account_id"),
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

TABLES: Final = (
    missing_topics,
    waiting_events,
    subscriptions,
    publications,
    deliveries,
)

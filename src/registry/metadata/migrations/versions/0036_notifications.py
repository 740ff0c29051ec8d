"""Add topics, subscriptions, and what is to be delivered to them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import ByteOrdered, Id, Moment

revision = "0036"
down_revision = "0035"


def upgrade() -> None:
    op.create_table(
        "topics",
        sa.Column("id", Id, nullable=False),
        sa.Column(
            "account_id",
            Id,
            sa.ForeignKey("accounts.id", name=op.f("fk_topics_account_id")),
            nullable=False,
        ),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("delivery_policy", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.UniqueConstraint(
            "account_id", "region", "name", name=op.f("uq_topics_account_id_region_name")
        ),
        sa.UniqueConstraint("id", "account_id", name=op.f("uq_topics_id_account_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_topics")),
    )
    op.create_index("ix_topics_account_id_id", "topics", ["account_id", "id"])
    op.create_table(
        "missing_topics",
        sa.Column(
            "account_id",
            Id,
            sa.ForeignKey("accounts.id", name=op.f("fk_missing_topics_account_id")),
            nullable=False,
        ),
        sa.Column("crn", ByteOrdered, nullable=False),
        sa.Column("first_at", Moment, nullable=False),
        sa.Column("last_at", Moment, nullable=False),
        sa.Column("events", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "crn", name=op.f("pk_missing_topics")),
    )
    op.create_index("ix_missing_topics_last_at", "missing_topics", ["last_at"])
    op.create_table(
        "waiting_events",
        sa.Column("event_id", Id, nullable=False),
        sa.Column("crn", ByteOrdered, nullable=False),
        sa.Column(
            "account_id",
            Id,
            sa.ForeignKey("accounts.id", name=op.f("fk_waiting_events_account_id")),
            nullable=False,
        ),
        sa.Column("type", ByteOrdered, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("event_id", "crn", name=op.f("pk_waiting_events")),
    )
    op.create_index("ix_waiting_events_topic", "waiting_events", ["account_id", "crn", "event_id"])
    op.create_index("ix_waiting_events_created_at", "waiting_events", ["created_at"])
    _create_subscriptions()
    op.create_table(
        "publications",
        sa.Column("id", Id, nullable=False),
        sa.Column(
            "topic_id",
            Id,
            sa.ForeignKey("topics.id", ondelete="CASCADE", name=op.f("fk_publications_topic_id")),
            nullable=False,
        ),
        sa.Column(
            "account_id",
            Id,
            sa.ForeignKey("accounts.id", name=op.f("fk_publications_account_id")),
            nullable=False,
        ),
        sa.Column("subject", sa.Text),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("attributes", sa.Text, nullable=False),
        sa.Column("published_at", Moment, nullable=False),
        sa.Column("ended_at", Moment),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_publications")),
    )
    op.create_index("ix_publications_topic_id", "publications", ["topic_id"])
    op.create_index("ix_publications_ended_at", "publications", ["ended_at"])
    op.create_table(
        "deliveries",
        sa.Column("id", Id, nullable=False),
        sa.Column(
            "account_id",
            Id,
            sa.ForeignKey("accounts.id", name=op.f("fk_deliveries_account_id")),
            nullable=False,
        ),
        sa.Column(
            "subscription_id",
            Id,
            sa.ForeignKey(
                "subscriptions.id", ondelete="CASCADE", name=op.f("fk_deliveries_subscription_id")
            ),
            nullable=False,
        ),
        sa.Column(
            "publication_id",
            Id,
            sa.ForeignKey(
                "publications.id", ondelete="CASCADE", name=op.f("fk_deliveries_publication_id")
            ),
        ),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due_at", Moment, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.UniqueConstraint(
            "publication_id",
            "subscription_id",
            name=op.f("uq_deliveries_publication_id_subscription_id"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
    )
    op.create_index("ix_deliveries_due", "deliveries", ["subscription_id", "due_at"])


def _create_subscriptions() -> None:
    op.create_table(
        "subscriptions",
        sa.Column("id", Id, nullable=False),
        sa.Column(
            "topic_id",
            Id,
            sa.ForeignKey("topics.id", ondelete="CASCADE", name=op.f("fk_subscriptions_topic_id")),
            nullable=False,
        ),
        sa.Column(
            "account_id",
            Id,
            sa.ForeignKey("accounts.id", name=op.f("fk_subscriptions_account_id")),
            nullable=False,
        ),
        sa.Column("protocol", sa.String(8), nullable=False),
        sa.Column("endpoint", ByteOrdered, nullable=False),
        sa.Column("status", sa.String(24), nullable=False),
        sa.Column("filter_policy", sa.Text, nullable=False),
        sa.Column("dead_letter_queue", ByteOrdered),
        sa.Column("raw_message_delivery", sa.Boolean, nullable=False),
        sa.Column("delivery_policy", sa.Text, nullable=False),
        sa.Column("signing_secret", sa.LargeBinary),
        sa.Column("previous_secret", sa.LargeBinary),
        sa.Column("previous_until", Moment),
        sa.Column("confirmation_nonce", ByteOrdered),
        sa.Column("confirmation_hash", sa.LargeBinary),
        sa.Column("confirmation_until", Moment),
        sa.Column("active_since", Moment),
        sa.Column("faults", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.CheckConstraint(
            "protocol IN ('email', 'http', 'https', 'queue')",
            name=op.f("ck_subscriptions_protocol"),
        ),
        sa.CheckConstraint(
            "status IN ('pending_confirmation', 'confirmed')", name=op.f("ck_subscriptions_status")
        ),
        sa.CheckConstraint(
            "status = 'confirmed' OR protocol <> 'queue'",
            name=op.f("ck_subscriptions_queue_status"),
        ),
        sa.CheckConstraint(
            "(protocol IN ('http', 'https')) = (signing_secret IS NOT NULL)",
            name=op.f("ck_subscriptions_signing_secret"),
        ),
        sa.CheckConstraint(
            "(previous_secret IS NULL) = (previous_until IS NULL)",
            name=op.f("ck_subscriptions_previous_secret"),
        ),
        sa.CheckConstraint(
            "(confirmation_hash IS NULL) = (confirmation_until IS NULL)",
            name=op.f("ck_subscriptions_confirmation_until"),
        ),
        sa.CheckConstraint(
            "(confirmation_hash IS NULL) = (status = 'confirmed')",
            name=op.f("ck_subscriptions_confirmation_hash"),
        ),
        sa.CheckConstraint(
            "(active_since IS NULL) = (status <> 'confirmed')",
            name=op.f("ck_subscriptions_active_since"),
        ),
        sa.UniqueConstraint(
            "topic_id",
            "protocol",
            "endpoint",
            name=op.f("uq_subscriptions_topic_id_protocol_endpoint"),
        ),
        sa.UniqueConstraint("confirmation_hash", name=op.f("uq_subscriptions_confirmation_hash")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_subscriptions")),
    )
    op.create_index("ix_subscriptions_topic_id_id", "subscriptions", ["topic_id", "id"])
    op.create_index("ix_subscriptions_account_id", "subscriptions", ["account_id"])


def downgrade() -> None:
    for name in (
        "deliveries",
        "publications",
        "subscriptions",
        "waiting_events",
        "missing_topics",
        "topics",
    ):
        op.drop_table(name)

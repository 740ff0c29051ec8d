"""Add queues and their messages."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import ByteOrdered, Id, Moment

revision = "0035"
down_revision = "0034"

_IS_LIVE = sa.text("deleted_at IS NULL")
_IS_DELETED = sa.text("deleted_at IS NOT NULL")
_HAS_DEAD_LETTERS = sa.text("dead_letter_queue_id IS NOT NULL")
_IS_VISIBLE = sa.text("hidden_until IS NULL")
_IS_HIDDEN = sa.text("hidden_until IS NOT NULL")


def upgrade() -> None:
    op.create_table(
        "queues",
        sa.Column("id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("retention_seconds", sa.Integer, nullable=False),
        sa.Column("lease_seconds", sa.Integer, nullable=False),
        sa.Column("delay_seconds", sa.Integer, nullable=False),
        sa.Column("dead_letter_queue_id", Id),
        sa.Column("max_leases", sa.Integer),
        sa.Column("purged_through", sa.BigInteger, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.Column("deleted_at", Moment),
        sa.CheckConstraint("retention_seconds > 0", name=op.f("ck_queues_retention_seconds")),
        sa.CheckConstraint("lease_seconds > 0", name=op.f("ck_queues_lease_seconds")),
        sa.CheckConstraint("delay_seconds >= 0", name=op.f("ck_queues_delay_seconds")),
        sa.CheckConstraint("max_leases > 0", name=op.f("ck_queues_max_leases")),
        sa.CheckConstraint(
            "dead_letter_queue_id <> id", name=op.f("ck_queues_dead_letter_queue_id")
        ),
        sa.CheckConstraint(
            "(dead_letter_queue_id IS NULL) = (max_leases IS NULL)",
            name=op.f("ck_queues_redrive_policy"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_queues")),
        sa.UniqueConstraint("id", "account_id", name=op.f("uq_queues_id_account_id")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_queues_account_id")),
        sa.ForeignKeyConstraint(
            ["dead_letter_queue_id", "account_id"],
            ["queues.id", "queues.account_id"],
            name="fk_queues_dead_letter_queue",
        ),
    )
    op.create_index("ix_queues_account_id_id", "queues", ["account_id", "id"])
    op.create_index(
        "uq_queues_name",
        "queues",
        ["account_id", "region", "name"],
        unique=True,
        sqlite_where=_IS_LIVE,
        postgresql_where=_IS_LIVE,
    )
    op.create_index(
        "ix_queues_dead_letter_queue_id",
        "queues",
        ["dead_letter_queue_id"],
        sqlite_where=_HAS_DEAD_LETTERS,
        postgresql_where=_HAS_DEAD_LETTERS,
    )
    op.create_index(
        "ix_queues_deleted",
        "queues",
        ["id"],
        sqlite_where=_IS_DELETED,
        postgresql_where=_IS_DELETED,
    )
    op.create_table(
        "queue_messages",
        sa.Column("position", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        sa.Column("id", Id, nullable=False),
        sa.Column("queue_id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("queued_at", Moment, nullable=False),
        sa.Column("hidden_until", Moment),
        sa.Column("lease_token", sa.String(22)),
        sa.Column("lease_count", sa.Integer, nullable=False),
        sa.Column("sent_at", Moment, nullable=False),
        sa.Column("attributes", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.CheckConstraint("lease_count >= 0", name=op.f("ck_queue_messages_lease_count")),
        sa.CheckConstraint(
            "lease_token IS NULL OR hidden_until IS NOT NULL",
            name=op.f("ck_queue_messages_lease_token"),
        ),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_queue_messages")),
        sa.ForeignKeyConstraint(
            ["queue_id", "account_id"],
            ["queues.id", "queues.account_id"],
            name="fk_queue_messages_queue",
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("uq_queue_messages_id", "queue_messages", ["id"], unique=True)
    op.create_index("ix_queue_messages_all", "queue_messages", ["queue_id", "position", "size"])
    op.create_index(
        "ix_queue_messages_visible",
        "queue_messages",
        ["queue_id", "position"],
        sqlite_where=_IS_VISIBLE,
        postgresql_where=_IS_VISIBLE,
    )
    op.create_index(
        "ix_queue_messages_hidden",
        "queue_messages",
        ["queue_id", "hidden_until", "position"],
        sqlite_where=_IS_HIDDEN,
        postgresql_where=_IS_HIDDEN,
    )


def downgrade() -> None:
    op.drop_table("queue_messages")
    op.drop_table("queues")

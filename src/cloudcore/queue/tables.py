"""The tables of queues and their messages."""

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
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from cloudcore.db.schema import ByteOrdered, Id, Moment, metadata

IS_LIVE: Final = text("deleted_at IS NULL")
IS_DELETED: Final = text("deleted_at IS NOT NULL")
HAS_DEAD_LETTERS: Final = text("dead_letter_queue_id IS NOT NULL")
IS_VISIBLE: Final = text("hidden_until IS NULL")
IS_HIDDEN: Final = text("hidden_until IS NOT NULL")

queues = Table(
    "queues",
    metadata,
    Column("id", Id, primary_key=True),
    Column("account_id", Id, ForeignKey("accounts.id"), nullable=False),
    Column("region", ByteOrdered, nullable=False),
    Column("name", ByteOrdered, nullable=False),
    Column("description", Text, nullable=False),
    Column("tags", Text, nullable=False),  # a JSON object
    Column("retention_seconds", Integer, nullable=False),
    Column("lease_seconds", Integer, nullable=False),
    Column("delay_seconds", Integer, nullable=False),
    Column("dead_letter_queue_id", Id),
    Column("max_leases", Integer),
    # Messages up to this position were purged, whether or not their rows are still there.
    Column("purged_through", BigInteger, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    Column("deleted_at", Moment),  # the row goes after its last message
    CheckConstraint("retention_seconds > 0", name="retention_seconds"),
    CheckConstraint("lease_seconds > 0", name="lease_seconds"),
    CheckConstraint("delay_seconds >= 0", name="delay_seconds"),
    CheckConstraint("max_leases > 0", name="max_leases"),
    CheckConstraint("dead_letter_queue_id <> id", name="dead_letter_queue_id"),
    CheckConstraint("(dead_letter_queue_id IS NULL) = (max_leases IS NULL)", name="redrive_policy"),
    UniqueConstraint("id", "account_id"),
    ForeignKeyConstraint(
        ["dead_letter_queue_id", "account_id"],
        ["queues.id", "queues.account_id"],
        name="fk_queues_dead_letter_queue",
    ),
    Index("ix_queues_account_id_id", "account_id", "id"),
    Index(
        "uq_queues_name",
        "account_id",
        "region",
        "name",
        unique=True,
        sqlite_where=IS_LIVE,
        postgresql_where=IS_LIVE,
    ),
    Index(
        "ix_queues_dead_letter_queue_id",
        "dead_letter_queue_id",
        sqlite_where=HAS_DEAD_LETTERS,
        postgresql_where=HAS_DEAD_LETTERS,
    ),
    Index("ix_queues_deleted", "id", sqlite_where=IS_DELETED, postgresql_where=IS_DELETED),
)

# A message is visible, or hidden until a moment: the end of its delay or of its lease.
queue_messages = Table(
    "queue_messages",
    metadata,
    # Never given twice, also on SQLite: a purge counts on it.
    Column("position", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("id", Id, nullable=False),
    Column("queue_id", Id, nullable=False),
    Column("account_id", Id, nullable=False),
    Column("size", Integer, nullable=False),  # of body and attributes, in bytes
    Column("queued_at", Moment, nullable=False),
    Column("hidden_until", Moment),
    Column("lease_token", String(22)),
    Column("lease_count", Integer, nullable=False),
    Column("sent_at", Moment, nullable=False),  # earlier than queued_at for a dead letter
    Column("attributes", Text, nullable=False),  # a JSON object
    Column("body", LargeBinary, nullable=False),  # UTF-8
    ForeignKeyConstraint(
        ["queue_id", "account_id"],
        ["queues.id", "queues.account_id"],
        name="fk_queue_messages_queue",
    ),
    CheckConstraint("lease_count >= 0", name="lease_count"),
    CheckConstraint("lease_token IS NULL OR hidden_until IS NOT NULL", name="lease_token"),
    Index("uq_queue_messages_id", "id", unique=True),
    Index("ix_queue_messages_all", "queue_id", "position", "size"),
    Index(
        "ix_queue_messages_visible",
        "queue_id",
        "position",
        sqlite_where=IS_VISIBLE,
        postgresql_where=IS_VISIBLE,
    ),
    Index(
        "ix_queue_messages_hidden",
        "queue_id",
        "hidden_until",
        "position",
        sqlite_where=IS_HIDDEN,
        postgresql_where=IS_HIDDEN,
    ),
    sqlite_autoincrement=True,
)
TABLES: Final = (queues, queue_messages)

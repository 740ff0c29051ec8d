"""The table of messages."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    text,
)

from cloudcore.db.schema import Id, Moment, metadata

IS_VISIBLE: Final = text("hidden_until IS NULL")
IS_HIDDEN: Final = text("hidden_until IS NOT NULL")

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

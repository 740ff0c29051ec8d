"""The tables of the collector: quarantined objects, and generations of the store."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    String,
    Table,
    text,
)

from cloudcore.db.schema import DigestText, Id, Moment, metadata
from cloudcore.identity.tables import accounts

quarantined_objects = Table(
    "quarantined_objects",
    metadata,
    Column("id", Id, primary_key=True),  # the object's, or new if only its bytes were replaced
    Column("account_id", ForeignKey(accounts.c.id), nullable=False),
    Column("digest", DigestText, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("stored_size", BigInteger, nullable=False),
    Column("encoding", String(16), nullable=False),
    Column("swept_at", Moment, nullable=False),
    Column("removal_began_at", Moment),  # null: the bytes still exist
    Column("stored_id", Id, nullable=False),  # of the bytes; see `blob_objects`
    Column("is_inline", Boolean, nullable=False, server_default=text("false")),
    Column("checksum", String(64)),
    Index(None, "account_id", "swept_at"),
    Index(None, "account_id", "digest"),
    Index("uq_quarantined_objects_stored_id", "stored_id", unique=True),
)

OF_THE_BYTES: Final = (
    "account_id",
    "digest",
    "size",
    "stored_size",
    "encoding",
    "stored_id",
    "is_inline",
    "checksum",
)
"""Columns of `blob_objects` that go to the quarantine with the bytes."""

# The data key of each sealed object in quarantine, as in `blob_object_keys`.
quarantined_object_keys = Table(
    "quarantined_object_keys",
    metadata,
    Column(
        "quarantined_id", ForeignKey("quarantined_objects.id", ondelete="CASCADE"), primary_key=True
    ),
    Column("kms_key_id", Id, primary_key=True),
    Column("account_id", Id, nullable=False),
    Column("wrapped_data_key", LargeBinary, nullable=False),
    ForeignKeyConstraint(["kms_key_id", "account_id"], ["kms_keys.id", "kms_keys.account_id"]),
    Index(None, "kms_key_id", "quarantined_id"),
)

store_generations = Table(
    "store_generations",
    metadata,
    Column("id", Id, primary_key=True),
    Column("noted_at", Moment, nullable=False),
    Column("accepted_at", Moment),  # when an operator accepted this database
    Index(None, "noted_at"),
    Index(None, "accepted_at"),
)

TABLES: Final = (
    quarantined_objects,
    quarantined_object_keys,
    store_generations,
)

"""The tables of the collector: quarantined objects, and generations of the store."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    String,
    Table,
)

from cloudcore.db.schema import DigestText, Id, Moment, metadata
from cloudcore.identity.tables import accounts

quarantined_objects = Table(
    "quarantined_objects",
    metadata,
    Column("id", Id, primary_key=True),  # the object's
    Column("account_id", ForeignKey(accounts.c.id), nullable=False),
    Column("digest", DigestText, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("stored_size", BigInteger, nullable=False),
    Column("encoding", String(16), nullable=False),
    Column("swept_at", Moment, nullable=False),
    Column("removal_began_at", Moment),  # null: the bytes still exist
    Index(None, "account_id", "swept_at"),
    Index(None, "account_id", "digest"),
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
    store_generations,
)

"""The tables of the collector: what it has swept, its runs, and the generations of the data."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    String,
    Table,
    Text,
    text,
)

from cloudcore.db.schema import DigestText, Id, Moment, metadata
from cloudcore.identity.tables import accounts

quarantined_objects = Table(
    "quarantined_objects",
    metadata,
    Column("id", Id, primary_key=True),  # that of the object
    Column("account_id", ForeignKey(accounts.c.id), nullable=False),
    Column("digest", DigestText, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("stored_size", BigInteger, nullable=False),
    Column("layout", String(16), nullable=False),
    Column("swept_at", Moment, nullable=False),
    Column("removal_began_at", Moment),  # null: the bytes are there
    Index(None, "account_id", "swept_at"),
    Index(None, "account_id", "digest"),
)

store_generations = Table(
    "store_generations",
    metadata,
    Column("id", Id, primary_key=True),
    Column("noted_at", Moment, nullable=False),
    Column("accepted_at", Moment),  # when an operator said that this database is the right one
    Index(None, "noted_at"),
    Index(None, "accepted_at"),
)

gc_runs = Table(
    "gc_runs",
    metadata,
    Column("id", Id, primary_key=True),
    Column("account_id", ForeignKey(accounts.c.id), nullable=False),
    Column("status", String(16), nullable=False),
    Column("started_by", Text, nullable=False),  # CRN; empty: its time had come
    Column("unlinked", BigInteger, nullable=False),
    Column("condemned", BigInteger, nullable=False),
    Column("swept", BigInteger, nullable=False),
    Column("removed", BigInteger, nullable=False),
    Column("freed_bytes", BigInteger, nullable=False),
    Column("kept", BigInteger, nullable=False),
    Column("fault", Text),
    Column("started_at", Moment, nullable=False),
    Column("finished_at", Moment),
    CheckConstraint("status IN ('running', 'succeeded', 'failed')", name="status"),
    CheckConstraint("(status = 'running') = (finished_at IS NULL)", name="finished_at"),
    Index(None, "account_id", "id"),
)
Index(
    "uq_gc_runs_running",
    gc_runs.c.account_id,
    unique=True,
    sqlite_where=text("status = 'running'"),
    postgresql_where=text("status = 'running'"),
)

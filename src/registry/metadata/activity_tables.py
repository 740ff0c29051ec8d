"""The table of what repositories held and how often they were pulled, a row for each day."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, Table

from cloudcore.db.schema import Id, metadata
from registry.metadata.tables import repositories

repository_days = Table(
    "repository_days",
    metadata,
    Column("repository_id", ForeignKey(repositories.c.id, ondelete="CASCADE"), primary_key=True),
    Column("day", Integer, primary_key=True),  # since the epoch, UTC
    Column("account_id", Id, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),  # when it was last measured on that day
    Column("pulls", BigInteger, nullable=False),
    Index(None, "account_id", "day"),
    Index(None, "day"),
)

TABLES: Final = (repository_days,)

"""What repositories and accounts held and how often they were pulled, by day, and what changed.

The rows of pulls are written with each batch of pulls, all others by the measurement every six
hours. So a graph of an account reads a row for each day, and a list of what grew or of what is
stale reads as many rows as it shows.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, Table, text

from cloudcore.db.schema import Id, Moment, metadata, partial_index
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

# The sums of its repositories' rows; they stay when a repository is deleted.
account_days = Table(
    "account_days",
    metadata,
    Column("account_id", Id, primary_key=True),
    Column("day", Integer, primary_key=True),
    Column("size_bytes", BigInteger, nullable=False),
    Column("pulls", BigInteger, nullable=False),
    Index(None, "day"),
)

repository_activity = Table(
    "repository_activity",
    metadata,
    Column("repository_id", ForeignKey(repositories.c.id, ondelete="CASCADE"), primary_key=True),
    Column("account_id", Id, nullable=False),
    Column("used_at", Moment, nullable=False),  # the last push or pull, or when it was made
    Column("size_bytes", BigInteger, nullable=False),
)
HOLDS_BYTES = text("size_bytes > 0")
partial_index(
    "ix_repository_activity_used_at",
    repository_activity.c.account_id,
    repository_activity.c.used_at,
    repository_activity.c.repository_id,
    where=HOLDS_BYTES,
)

repository_growth = Table(
    "repository_growth",
    metadata,
    Column("repository_id", ForeignKey(repositories.c.id, ondelete="CASCADE"), primary_key=True),
    Column("span", Integer, primary_key=True),  # days until the measurement
    Column("account_id", Id, nullable=False),
    Column("size_before", BigInteger, nullable=False),  # at the beginning of the span
    Column("size_bytes", BigInteger, nullable=False),
    Column("change_bytes", BigInteger, nullable=False),  # the difference, without its sign
    Index(None, "account_id", "span", "change_bytes", "repository_id"),
)

TABLES: Final = (repository_days, account_days, repository_activity, repository_growth)

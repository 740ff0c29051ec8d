"""The tables of the pull-through cache."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from cloudcore.db.schema import ByteOrdered, Id, Moment, metadata
from cloudcore.identity.tables import accounts

pull_through_cache_rules = Table(
    "pull_through_cache_rules",
    metadata,
    Column("id", Id, primary_key=True),
    Column("account_id", ForeignKey(accounts.c.id), nullable=False),
    # One to three components; no prefix lies within another one of the account.
    Column("prefix", ByteOrdered, nullable=False),
    Column("upstream_url", Text, nullable=False),  # an origin
    Column("upstream_prefix", Text, nullable=False, server_default=text("''")),
    Column("username", Text),
    Column("secret_sealed", LargeBinary),
    Column("tag_ttl_seconds", BigInteger, nullable=False),
    Column("negative_ttl_seconds", BigInteger, nullable=False),
    Column("keep_unpulled_days", BigInteger),  # null: cached images are kept
    Column("max_bytes", BigInteger),  # null: no limit
    Column("enabled", Boolean, nullable=False),
    Column("last_success_at", Moment),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    UniqueConstraint("account_id", "prefix"),
    CheckConstraint("(username IS NULL) = (secret_sealed IS NULL)", name="credential"),
)

# Totals since the rule was created; a row comes with the first pull.
pull_through_stats = Table(
    "pull_through_stats",
    metadata,
    Column(
        "rule_id", ForeignKey(pull_through_cache_rules.c.id, ondelete="CASCADE"), primary_key=True
    ),
    Column("pulls", BigInteger, nullable=False),
    Column("misses", BigInteger, nullable=False),
    Column("fetched_bytes", BigInteger, nullable=False),
    Column("served_bytes", BigInteger, nullable=False),
)

TABLES: Final = (pull_through_cache_rules, pull_through_stats)

"""The tables of the pull-through cache."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from cloudcore.db.schema import ByteOrdered, DigestText, Id, Moment, metadata
from cloudcore.identity.tables import accounts
from registry.metadata.tables import uploads

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

# The blobs that are being fetched from upstreams: one fetch per account, upstream and digest.
blob_fills = Table(
    "blob_fills",
    metadata,
    Column("account_id", ForeignKey(accounts.c.id), primary_key=True),
    # Of the rule, its upstream and the blob's digest (`services.pull_through.fill_source`).
    Column("digest", DigestText, primary_key=True),
    # That stages the bytes; its end is the end of the fill.
    Column("upload_id", ForeignKey(uploads.c.id, ondelete="CASCADE"), nullable=False),
    # Of the blob; null: the upstream has not told, or the bytes are not staged in a file.
    Column("size", BigInteger),
    Index("uq_blob_fills_upload_id", "upload_id", unique=True),
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

TABLES: Final = (pull_through_cache_rules, pull_through_stats, blob_fills)

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
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from cloudcore.db.schema import ByteOrdered, DigestText, Id, Moment, foreign_key, metadata
from cloudcore.identity.tables import accounts
from cloudcore.resources.rows import Rows
from registry.metadata.control_tables import deleted_manifests
from registry.metadata.pull_through.cache_rule import CACHE_RULE
from registry.metadata.tables import repositories, uploads

CACHE_RULES: Final = Rows(
    CACHE_RULE,
    CheckConstraint("(username IS NULL) = (secret_sealed IS NULL)", name="credential"),
    unique=UniqueConstraint("account_id", "prefix"),
)
pull_through_cache_rules: Final = CACHE_RULES.table

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


# A row comes with the first failure, or the first limit that the upstream tells.
upstream_states = Table(
    "upstream_states",
    metadata,
    Column(
        "rule_id",
        Id,
        ForeignKey(pull_through_cache_rules.c.id, ondelete="CASCADE"),
        primary_key=True,
    ),
    Column("paused_until", Moment),  # null: it may be asked
    Column("pause_code", String(32)),  # of the fault for which it is left alone
    Column("failures", Integer, nullable=False),  # in a row, at most one per second
    Column("failed_at", Moment),
    Column("rate_limit", BigInteger),
    Column("rate_remaining", BigInteger),
    Column("rate_window_seconds", BigInteger),
    Column("rate_at", Moment),
    Column("accepted_repository", ByteOrdered),  # for which the rule's credential was accepted
    Column("accepted_at", Moment),
)

# A fault of one code is one row, counted.
upstream_faults = Table(
    "upstream_faults",
    metadata,
    Column(
        "rule_id",
        Id,
        ForeignKey(pull_through_cache_rules.c.id, ondelete="CASCADE"),
        primary_key=True,
    ),
    Column("code", String(32), primary_key=True),
    Column("message", Text, nullable=False),
    Column("stage", String(16), nullable=False),
    Column("http_status", Integer),
    Column("first_at", Moment, nullable=False),
    Column("last_at", Moment, nullable=False),
    Column("occurrences", BigInteger, nullable=False),
)


# Blobs that a cached manifest lists and its repository does not link yet.
missing_blobs = Table(
    "missing_blobs",
    metadata,
    Column("manifest_id", Id, primary_key=True),
    Column("digest", DigestText, primary_key=True),  # as listed, of any algorithm
    Column("repository_id", Id, nullable=False),
    Column("size", BigInteger, nullable=False),  # as listed
    foreign_key("manifests", ondelete="CASCADE", manifest_id="id", repository_id="repository_id"),
    Index(None, "digest", "repository_id"),
)

# The same of deleted manifests, for their restoration.
deleted_missing_blobs = Table(
    "deleted_missing_blobs",
    metadata,
    Column("manifest_id", ForeignKey(deleted_manifests.c.id, ondelete="CASCADE"), primary_key=True),
    Column("digest", DigestText, primary_key=True),
    Column("size", BigInteger, nullable=False),
)

# What is known of a reference at an upstream while there is no manifest of it here.
upstream_lookups = Table(
    "upstream_lookups",
    metadata,
    Column(
        "rule_id", ForeignKey(pull_through_cache_rules.c.id, ondelete="CASCADE"), primary_key=True
    ),
    Column("repository", ByteOrdered, primary_key=True),  # its name, which need not exist
    Column("reference", ByteOrdered, primary_key=True),
    Column("fetching_until", Moment),  # one process is fetching it
    Column("absent_until", Moment),  # the upstream does not have it
    # Of the two the later one; then the row is forgotten.
    Column("ends_at", Moment, nullable=False, index=True),
)

# What an upstream told of the referrers of a manifest.
cached_referrers = Table(
    "cached_referrers",
    metadata,
    Column("repository_id", ForeignKey(repositories.c.id, ondelete="CASCADE"), primary_key=True),
    Column("subject", DigestText, primary_key=True),
    Column("body", LargeBinary, nullable=False),  # an index
    Column("checked_at", Moment, nullable=False),
    Column("fresh_until", Moment, nullable=False, index=True),
)

# What an upstream told of the tags of a repository, which need not exist here.
upstream_tag_lists = Table(
    "upstream_tag_lists",
    metadata,
    Column(
        "rule_id", ForeignKey(pull_through_cache_rules.c.id, ondelete="CASCADE"), primary_key=True
    ),
    Column("repository", ByteOrdered, primary_key=True),
    Column("names", LargeBinary, nullable=False),  # in byte order, one a line
    Column("is_whole", Boolean, nullable=False),
    Column("checked_at", Moment, nullable=False),
    Column("fresh_until", Moment, nullable=False, index=True),
)

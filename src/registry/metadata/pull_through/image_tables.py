"""The tables of cached images: what they list and is not there yet, and what upstreams answered."""

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
    Table,
)

from cloudcore.db.schema import ByteOrdered, DigestText, Id, Moment, metadata
from registry.metadata.control_tables import deleted_manifests
from registry.metadata.pull_through.tables import pull_through_cache_rules
from registry.metadata.tables import repositories

# Blobs that a cached manifest lists and its repository does not link yet.
missing_blobs = Table(
    "missing_blobs",
    metadata,
    Column("manifest_id", Id, primary_key=True),
    Column("digest", DigestText, primary_key=True),  # as listed, of any algorithm
    Column("repository_id", Id, nullable=False),
    Column("size", BigInteger, nullable=False),  # as listed
    ForeignKeyConstraint(
        ["manifest_id", "repository_id"],
        ["manifests.id", "manifests.repository_id"],
        ondelete="CASCADE",
    ),
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

TABLES: Final = (
    missing_blobs,
    deleted_missing_blobs,
    upstream_lookups,
    cached_referrers,
    upstream_tag_lists,
)

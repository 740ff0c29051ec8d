"""The tables of the pull-through cache."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from cloudcore.db.schema import ByteOrdered, DigestText, Id, Moment, foreign_key
from cloudcore.db.tables import columns, indexes, refers, table, unique_index
from cloudcore.resources.rows import Rows
from registry.metadata import control_tables as _tables  # noqa: F401 - foreign keys refer to them
from registry.metadata.pull_through.cache_rule import CACHE_RULE

CACHE_RULES: Final = Rows(
    CACHE_RULE,
    sa.CheckConstraint("(username IS NULL) = (secret_sealed IS NULL)", name="credential"),
    unique=sa.UniqueConstraint("account_id", "prefix"),
)
pull_through_cache_rules: Final = CACHE_RULES.table

# The blobs that are being fetched from upstreams: one fetch per account, upstream and digest.
blob_fills = table(
    "blob_fills",
    refers("account_id KEY", "accounts"),
    # A hash of the rule, its upstream and the blob's digest (`services.pull_through.fills`).
    columns(DigestText, "digest KEY"),
    # The session that stages the bytes; the fill ends with it.
    refers("upload_id", "uploads", "CASCADE"),
    # Of the blob; null: the upstream has not told, or the bytes are not staged in a file.
    columns(sa.BigInteger, "size NULL"),
    unique_index("upload_id", "upload_id"),
)

# Totals since the rule was created; a row comes with the first pull.
pull_through_stats = table(
    "pull_through_stats",
    refers("rule_id KEY", "pull_through_cache_rules", "CASCADE"),
    columns(sa.BigInteger, "pulls, misses, fetched_bytes, served_bytes"),
)

# A row is inserted at the first failure, or the first rate limit that the upstream states.
upstream_states = table(
    "upstream_states",
    refers("rule_id KEY", "pull_through_cache_rules", "CASCADE"),
    # The repository for which the rule's credential was last accepted.
    columns(ByteOrdered, "accepted_repository NULL"),
    columns(sa.String(32), "pause_code NULL"),  # of the fault that paused requests
    columns(sa.Integer, "failures"),  # in a row, at most one per second
    columns(sa.BigInteger, "rate_limit NULL, rate_remaining NULL, rate_window_seconds NULL"),
    columns(Moment, "paused_until NULL"),  # null: not paused
    columns(Moment, "failed_at NULL, rate_at NULL, accepted_at NULL"),
)

# One row per fault code, with a count.
upstream_faults = table(
    "upstream_faults",
    refers("rule_id KEY", "pull_through_cache_rules", "CASCADE"),
    columns(sa.String(32), "code KEY"),
    columns(sa.String(16), "stage"),
    columns(sa.Integer, "http_status NULL"),
    columns(sa.BigInteger, "occurrences"),
    columns(Moment, "first_at, last_at"),
    columns(sa.Text, "message"),
)

# Blobs that a cached manifest lists and its repository does not link yet.
missing_blobs = table(
    "missing_blobs",
    columns(Id, "manifest_id KEY, repository_id"),
    columns(DigestText, "digest KEY"),  # as listed, of any algorithm
    columns(sa.BigInteger, "size"),  # as listed
    foreign_key("manifests", ondelete="CASCADE", manifest_id="id", repository_id="repository_id"),
    indexes("digest, repository_id"),
)

# The same for deleted manifests, so that they can be restored.
deleted_missing_blobs = table(
    "deleted_missing_blobs",
    refers("manifest_id KEY", "deleted_manifests", "CASCADE"),
    columns(DigestText, "digest KEY"),
    columns(sa.BigInteger, "size"),
)

# Claims and absences of upstream references that have no manifest here.
upstream_lookups = table(
    "upstream_lookups",
    refers("rule_id KEY", "pull_through_cache_rules", "CASCADE"),
    columns(ByteOrdered, "repository KEY, reference KEY"),  # the repository need not exist
    columns(Moment, "fetching_until NULL"),  # one process is fetching it
    columns(Moment, "absent_until NULL"),  # the upstream does not have it
    columns(Moment, "ends_at"),  # of the two the later one; then the row is forgotten
    indexes("ends_at"),
)

# An upstream's referrers of a manifest.
cached_referrers = table(
    "cached_referrers",
    refers("repository_id KEY", "repositories", "CASCADE"),
    columns(DigestText, "subject KEY"),
    columns(Moment, "checked_at, fresh_until"),
    columns(sa.LargeBinary, "body"),  # an index
    indexes("fresh_until"),
)

# An upstream's tags of a repository, which need not exist here.
upstream_tag_lists = table(
    "upstream_tag_lists",
    refers("rule_id KEY", "pull_through_cache_rules", "CASCADE"),
    columns(ByteOrdered, "repository KEY"),
    columns(sa.Boolean, "is_whole"),
    columns(Moment, "checked_at, fresh_until"),
    columns(sa.LargeBinary, "names"),  # in byte order, one a line
    indexes("fresh_until"),
)

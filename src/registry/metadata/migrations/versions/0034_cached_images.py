"""Add what cached images list and lack, how fresh cached tags are, and what upstreams answered."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import ByteOrdered, DigestText, Id, Moment

revision = "0034"
down_revision = "0033"

_IS_MISSING = sa.text("child_id IS NULL")


def upgrade() -> None:
    for name, kind in (
        ("fresh_until", Moment),
        ("stale_since", Moment),
        ("checked_at", Moment),
        ("upstream_etag", sa.Text),
    ):
        op.add_column("tags", sa.Column(name, kind))
    op.create_index(
        "ix_manifest_children_missing",
        "manifest_children",
        ["repository_id", "child_digest"],
        sqlite_where=_IS_MISSING,
        postgresql_where=_IS_MISSING,
    )
    op.add_column(
        "deleted_manifest_children",
        sa.Column("is_missing", sa.Boolean, nullable=False, server_default=sa.text("false")),
    )
    op.create_table(
        "missing_blobs",
        sa.Column("manifest_id", Id, nullable=False),
        sa.Column("digest", DigestText, nullable=False),
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("manifest_id", "digest", name=op.f("pk_missing_blobs")),
        sa.ForeignKeyConstraint(
            ["manifest_id", "repository_id"],
            ["manifests.id", "manifests.repository_id"],
            name=op.f("fk_missing_blobs_manifest_id_repository_id"),
            ondelete="CASCADE",
        ),
    )
    op.create_index(
        op.f("ix_missing_blobs_digest_repository_id"), "missing_blobs", ["digest", "repository_id"]
    )
    op.create_table(
        "deleted_missing_blobs",
        sa.Column("manifest_id", Id, nullable=False),
        sa.Column("digest", DigestText, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("manifest_id", "digest", name=op.f("pk_deleted_missing_blobs")),
        sa.ForeignKeyConstraint(
            ["manifest_id"],
            ["deleted_manifests.id"],
            name=op.f("fk_deleted_missing_blobs_manifest_id"),
            ondelete="CASCADE",
        ),
    )
    op.create_table(
        "upstream_lookups",
        sa.Column("rule_id", Id, nullable=False),
        sa.Column("repository", ByteOrdered, nullable=False),
        sa.Column("reference", ByteOrdered, nullable=False),
        sa.Column("fetching_until", Moment),
        sa.Column("absent_until", Moment),
        sa.Column("ends_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint(
            "rule_id", "repository", "reference", name=op.f("pk_upstream_lookups")
        ),
        sa.ForeignKeyConstraint(
            ["rule_id"],
            ["pull_through_cache_rules.id"],
            name=op.f("fk_upstream_lookups_rule_id"),
            ondelete="CASCADE",
        ),
    )
    op.create_index(op.f("ix_upstream_lookups_ends_at"), "upstream_lookups", ["ends_at"])
    op.create_table(
        "cached_referrers",
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("subject", DigestText, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("checked_at", Moment, nullable=False),
        sa.Column("fresh_until", Moment, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "subject", name=op.f("pk_cached_referrers")),
        sa.ForeignKeyConstraint(
            ["repository_id"],
            ["repositories.id"],
            name=op.f("fk_cached_referrers_repository_id"),
            ondelete="CASCADE",
        ),
    )
    op.create_index(op.f("ix_cached_referrers_fresh_until"), "cached_referrers", ["fresh_until"])


def downgrade() -> None:
    for table in ("cached_referrers", "upstream_lookups", "deleted_missing_blobs", "missing_blobs"):
        op.drop_table(table)
    op.drop_column("deleted_manifest_children", "is_missing")
    op.drop_index("ix_manifest_children_missing", "manifest_children")
    for name in ("upstream_etag", "checked_at", "stale_since", "fresh_until"):
        op.drop_column("tags", name)

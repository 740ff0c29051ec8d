"""Add the rules of the pull-through cache."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import ByteOrdered, Id, Moment

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    op.create_table(
        "pull_through_cache_rules",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, sa.ForeignKey("accounts.id"), nullable=False),
        sa.Column("prefix", ByteOrdered, nullable=False),
        sa.Column("upstream_url", sa.Text, nullable=False),
        sa.Column("upstream_prefix", sa.Text, nullable=False, server_default=sa.text("''")),
        sa.Column("username", sa.Text),
        sa.Column("secret_sealed", sa.LargeBinary),
        sa.Column("tag_ttl_seconds", sa.BigInteger, nullable=False),
        sa.Column("negative_ttl_seconds", sa.BigInteger, nullable=False),
        sa.Column("keep_unpulled_days", sa.BigInteger),
        sa.Column("max_bytes", sa.BigInteger),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("last_success_at", Moment),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.UniqueConstraint("account_id", "prefix"),
        sa.CheckConstraint("(username IS NULL) = (secret_sealed IS NULL)", name="credential"),
    )
    op.create_table(
        "pull_through_stats",
        sa.Column(
            "rule_id",
            Id,
            sa.ForeignKey("pull_through_cache_rules.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("pulls", sa.BigInteger, nullable=False),
        sa.Column("misses", sa.BigInteger, nullable=False),
        sa.Column("fetched_bytes", sa.BigInteger, nullable=False),
        sa.Column("served_bytes", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("pull_through_stats")
    op.drop_table("pull_through_cache_rules")

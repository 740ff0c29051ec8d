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
        sa.Column("id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
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
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pull_through_cache_rules")),
        sa.ForeignKeyConstraint(
            ["account_id"],
            ["accounts.id"],
            name=op.f("fk_pull_through_cache_rules_account_id"),
        ),
        sa.UniqueConstraint(
            "account_id", "prefix", name=op.f("uq_pull_through_cache_rules_account_id_prefix")
        ),
        sa.CheckConstraint(
            "(username IS NULL) = (secret_sealed IS NULL)",
            name=op.f("ck_pull_through_cache_rules_credential"),
        ),
    )
    op.create_table(
        "pull_through_stats",
        sa.Column("rule_id", Id, nullable=False),
        sa.Column("pulls", sa.BigInteger, nullable=False),
        sa.Column("misses", sa.BigInteger, nullable=False),
        sa.Column("fetched_bytes", sa.BigInteger, nullable=False),
        sa.Column("served_bytes", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("rule_id", name=op.f("pk_pull_through_stats")),
        sa.ForeignKeyConstraint(
            ["rule_id"],
            ["pull_through_cache_rules.id"],
            name=op.f("fk_pull_through_stats_rule_id"),
            ondelete="CASCADE",
        ),
    )


def downgrade() -> None:
    op.drop_table("pull_through_stats")
    op.drop_table("pull_through_cache_rules")

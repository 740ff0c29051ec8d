"""Add what is known of upstreams: when one may be asked, and what went wrong with it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import Id, Moment

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    op.create_table(
        "upstream_states",
        sa.Column("rule_id", Id, nullable=False),
        sa.Column("paused_until", Moment),
        sa.Column("pause_code", sa.String(32)),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("failed_at", Moment),
        sa.Column("rate_limit", sa.BigInteger),
        sa.Column("rate_remaining", sa.BigInteger),
        sa.Column("rate_window_seconds", sa.BigInteger),
        sa.Column("rate_at", Moment),
        sa.PrimaryKeyConstraint("rule_id", name=op.f("pk_upstream_states")),
        sa.ForeignKeyConstraint(
            ["rule_id"],
            ["pull_through_cache_rules.id"],
            name=op.f("fk_upstream_states_rule_id"),
            ondelete="CASCADE",
        ),
    )
    op.create_table(
        "upstream_faults",
        sa.Column("rule_id", Id, nullable=False),
        sa.Column("code", sa.String(32), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("stage", sa.String(16), nullable=False),
        sa.Column("http_status", sa.Integer),
        sa.Column("first_at", Moment, nullable=False),
        sa.Column("last_at", Moment, nullable=False),
        sa.Column("occurrences", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("rule_id", "code", name=op.f("pk_upstream_faults")),
        sa.ForeignKeyConstraint(
            ["rule_id"],
            ["pull_through_cache_rules.id"],
            name=op.f("fk_upstream_faults_rule_id"),
            ondelete="CASCADE",
        ),
    )


def downgrade() -> None:
    op.drop_table("upstream_faults")
    op.drop_table("upstream_states")

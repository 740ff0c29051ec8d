"""Keep the tags that upstreams list, and for what they have accepted a rule's credential."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import ByteOrdered, Id, Moment

revision = "0047"
down_revision = "0046"


def upgrade() -> None:
    op.create_table(
        "upstream_tag_lists",
        sa.Column("rule_id", Id, nullable=False),
        sa.Column("repository", ByteOrdered, nullable=False),
        sa.Column("names", sa.LargeBinary, nullable=False),
        sa.Column("is_whole", sa.Boolean, nullable=False),
        sa.Column("checked_at", Moment, nullable=False),
        sa.Column("fresh_until", Moment, nullable=False),
        sa.PrimaryKeyConstraint("rule_id", "repository", name=op.f("pk_upstream_tag_lists")),
        sa.ForeignKeyConstraint(
            ["rule_id"],
            ["pull_through_cache_rules.id"],
            name=op.f("fk_upstream_tag_lists_rule_id"),
            ondelete="CASCADE",
        ),
    )
    op.create_index("ix_upstream_tag_lists_fresh_until", "upstream_tag_lists", ["fresh_until"])
    op.add_column("upstream_states", sa.Column("accepted_repository", ByteOrdered))
    op.add_column("upstream_states", sa.Column("accepted_at", Moment))


def downgrade() -> None:
    op.drop_column("upstream_states", "accepted_at")
    op.drop_column("upstream_states", "accepted_repository")
    op.drop_table("upstream_tag_lists")

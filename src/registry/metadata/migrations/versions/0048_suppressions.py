"""Add the suppressions of email."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import ByteOrdered, Id, Moment

revision = "0048"
down_revision = "0047"


def upgrade() -> None:
    op.create_table(
        "suppressions",
        sa.Column("id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("expires_at", Moment),
        sa.Column("reason", ByteOrdered, nullable=False),
        sa.Column("source_message_id", sa.Text),
        sa.Column("folded", ByteOrdered, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.CheckConstraint(
            "reason IN ('auto_bounce', 'auto_complaint', 'unsubscribe', 'manual')",
            name=op.f("ck_suppressions_reason"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_suppressions")),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_suppressions_account_id")
        ),
        sa.UniqueConstraint("id", "account_id", name=op.f("uq_suppressions_id_account_id")),
    )
    op.create_index("ix_suppressions_account_id_id", "suppressions", ["account_id", "id"])
    op.create_index(
        "uq_suppressions_folded", "suppressions", ["account_id", "region", "folded"], unique=True
    )


def downgrade() -> None:
    op.drop_table("suppressions")

"""Add what accounts use by hour, the reports of it that count once, and the hours sampled."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import ByteOrdered, Id

revision = "0058"
down_revision = "0056"


def upgrade() -> None:
    op.create_table(
        "usage_hours",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("hour", sa.Integer, nullable=False),
        sa.Column("sku", ByteOrdered, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("quantity", sa.BigInteger, nullable=False),
        sa.CheckConstraint("quantity > 0", name=op.f("ck_usage_hours_quantity")),
        sa.PrimaryKeyConstraint("account_id", "hour", "sku", "region", name=op.f("pk_usage_hours")),
    )
    op.create_index("ix_usage_hours_hour", "usage_hours", ["hour"])
    op.create_table(
        "usage_reports",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("sku", ByteOrdered, nullable=False),
        sa.Column("key", ByteOrdered, nullable=False),
        sa.Column("hour", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "sku", "key", name=op.f("pk_usage_reports")),
    )
    op.create_index("ix_usage_reports_hour", "usage_reports", ["hour"])
    op.create_table(
        "usage_samples",
        sa.Column("sku", ByteOrdered, nullable=False),
        sa.Column("hour", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("sku", "hour", name=op.f("pk_usage_samples")),
    )
    op.create_index("ix_usage_samples_hour", "usage_samples", ["hour"])


def downgrade() -> None:
    op.drop_table("usage_samples")
    op.drop_table("usage_reports")
    op.drop_table("usage_hours")

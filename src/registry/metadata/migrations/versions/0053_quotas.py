"""Add the limits that operators set."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import ByteOrdered, Id, Moment

revision = "0053"
down_revision = "0052"


def upgrade() -> None:
    op.create_table(
        "quotas",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("maximum", sa.BigInteger, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "name", name=op.f("pk_quotas")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_quotas_account_id")),
        sa.CheckConstraint("maximum >= 0", name=op.f("ck_quotas_maximum")),
    )
    op.create_table(
        "quota_defaults",
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("maximum", sa.BigInteger, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_quota_defaults")),
        sa.CheckConstraint("maximum >= 0", name=op.f("ck_quota_defaults_maximum")),
    )
    op.create_table(
        "quota_levels",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("percent", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "name", name=op.f("pk_quota_levels")),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_quota_levels_account_id")
        ),
        sa.CheckConstraint("percent IN (0, 80, 100)", name=op.f("ck_quota_levels_percent")),
    )


def downgrade() -> None:
    op.drop_table("quota_levels")
    op.drop_table("quota_defaults")
    op.drop_table("quotas")

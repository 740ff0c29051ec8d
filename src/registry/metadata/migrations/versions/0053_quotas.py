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
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("maximum", sa.BigInteger, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("name", "account_id", name=op.f("pk_quotas")),
        sa.CheckConstraint("maximum >= 0", name=op.f("ck_quotas_maximum")),
    )


def downgrade() -> None:
    op.drop_table("quotas")

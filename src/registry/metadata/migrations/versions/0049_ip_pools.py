"""Add the IP pools of email."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import ByteOrdered, Id, Moment

revision = "0049"
down_revision = "0048"


def upgrade() -> None:
    op.create_table(
        "ip_pools",
        sa.Column("id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ip_pools")),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_ip_pools_account_id")
        ),
        sa.UniqueConstraint("id", "account_id", name=op.f("uq_ip_pools_id_account_id")),
    )
    op.create_index("ix_ip_pools_account_id_id", "ip_pools", ["account_id", "id"])
    op.create_index("uq_ip_pools_name", "ip_pools", ["account_id", "region", "name"], unique=True)


def downgrade() -> None:
    op.drop_table("ip_pools")

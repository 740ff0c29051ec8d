"""Add the machines that run the service."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import ByteOrdered, Id, Moment

revision = "0061"
down_revision = "0060"


def upgrade() -> None:
    op.create_table(
        "nodes",
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("identity", Id, nullable=False),
        sa.Column("capabilities", sa.Text, nullable=False),
        sa.Column("seen_at", Moment, nullable=False),
        sa.Column("is_lost", sa.Boolean, nullable=False),
        sa.Column("is_noted", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_nodes")),
    )


def downgrade() -> None:
    op.drop_table("nodes")

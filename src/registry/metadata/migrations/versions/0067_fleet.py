"""Add the settings that all machines have in common, and when a machine stopped in order."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import ByteOrdered, Moment

revision = "0067"
down_revision = "0066"


def upgrade() -> None:
    op.create_table(
        "fleet_settings",
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_fleet_settings")),
    )
    op.add_column("nodes", sa.Column("stopped_at", Moment))


def downgrade() -> None:
    op.drop_column("nodes", "stopped_at")
    op.drop_table("fleet_settings")

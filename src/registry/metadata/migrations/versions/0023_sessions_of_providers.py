"""Let the sessions that an identity provider began end for good, after a time that it is given."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0021"


def upgrade() -> None:
    with op.batch_alter_table("identity_providers", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column(
                "session_hours", sa.BigInteger(), server_default=sa.text("168"), nullable=False
            )
        )
    with op.batch_alter_table("auth_codes", schema=None) as batch_op:
        batch_op.add_column(sa.Column("identity_provider_id", sa.String(length=36), nullable=True))
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.add_column(sa.Column("ends_at", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.drop_column("ends_at")
    with op.batch_alter_table("auth_codes", schema=None) as batch_op:
        batch_op.drop_column("identity_provider_id")
    with op.batch_alter_table("identity_providers", schema=None) as batch_op:
        batch_op.drop_column("session_hours")

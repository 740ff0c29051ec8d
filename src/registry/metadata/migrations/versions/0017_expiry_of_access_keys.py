"""Let access keys expire and have a description; note when roles were last used."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0015"


def upgrade() -> None:
    with op.batch_alter_table("access_keys", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("description", sa.Text(), server_default=sa.text("''"), nullable=False)
        )
        batch_op.add_column(sa.Column("expires_at", sa.BigInteger(), nullable=True))
    with op.batch_alter_table("roles", schema=None) as batch_op:
        batch_op.add_column(sa.Column("last_used_at", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("roles", schema=None) as batch_op:
        batch_op.drop_column("last_used_at")
    with op.batch_alter_table("access_keys", schema=None) as batch_op:
        batch_op.drop_column("expires_at")
        batch_op.drop_column("description")

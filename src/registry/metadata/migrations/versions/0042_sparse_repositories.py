"""Mark repositories whose indexes may lack a child, and keep when deleted tags were created."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"


def upgrade() -> None:
    op.add_column(
        "repositories",
        sa.Column("is_sparse", sa.Boolean, server_default=sa.text("false"), nullable=False),
    )
    op.add_column("deleted_tags", sa.Column("created_at", sa.BigInteger))


def downgrade() -> None:
    op.drop_column("deleted_tags", "created_at")
    op.drop_column("repositories", "is_sparse")

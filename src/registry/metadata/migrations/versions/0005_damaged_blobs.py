"""Add marks of damaged blobs, and the time at which each blob was verified last.

Blobs that are stored already count as verified when they were stored.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    for column in (
        sa.Column("verified_at", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("damage", sa.String(length=16), nullable=True),
        sa.Column("damaged_at", sa.BigInteger(), nullable=True),
    ):
        # Single statements, not a batch: that would copy a table that foreign keys refer to.
        op.add_column("blob_objects", column)
    op.execute("UPDATE blob_objects SET verified_at = created_at")
    op.create_index(
        "ix_blob_objects_damaged",
        "blob_objects",
        ["account_id", "digest"],
        unique=False,
        sqlite_where=sa.text("damage IS NOT NULL"),
        postgresql_where=sa.text("damage IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index("ix_blob_objects_damaged", "blob_objects")
    for name in ("damaged_at", "damage", "verified_at"):
        op.drop_column("blob_objects", name)

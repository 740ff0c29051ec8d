"""Keep small uploads in their row, and remember ended ones whose id is still valid."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    op.add_column("uploads", sa.Column("body", sa.LargeBinary))
    op.create_table(
        "ended_uploads",
        sa.Column("id", sa.String(36), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ended_uploads")),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("ended_uploads")
    op.execute("DELETE FROM uploads WHERE body IS NOT NULL")
    # Not by a batch, which would write the table anew: older revisions change its text.
    op.drop_column("uploads", "body")

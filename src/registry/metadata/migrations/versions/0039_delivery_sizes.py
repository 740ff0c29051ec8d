"""Let each delivery tell the size of its message, so that what waits can be summed up."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"


def upgrade() -> None:
    op.add_column(
        "deliveries", sa.Column("size", sa.Integer, nullable=False, server_default=sa.text("0"))
    )
    op.execute(
        "UPDATE deliveries SET size = coalesce((SELECT octet_length(message) FROM publications"
        " WHERE publications.id = deliveries.publication_id), 0)"
        if op.get_bind().dialect.name == "postgresql"
        else "UPDATE deliveries SET size = coalesce((SELECT length(CAST(message AS BLOB))"
        " FROM publications WHERE publications.id = deliveries.publication_id), 0)"
    )
    op.drop_index("ix_deliveries_due", "deliveries")
    op.create_index("ix_deliveries_due", "deliveries", ["subscription_id", "due_at", "size"])


def downgrade() -> None:
    op.drop_index("ix_deliveries_due", "deliveries")
    op.create_index("ix_deliveries_due", "deliveries", ["subscription_id", "due_at"])
    op.drop_column("deliveries", "size")

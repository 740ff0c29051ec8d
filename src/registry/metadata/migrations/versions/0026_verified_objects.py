"""Index objects by when their bytes were verified, for the scrub."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"

_HAS_BYTES = sa.text("damage IS NULL AND state <> 'shredded'")


def upgrade() -> None:
    op.create_index(
        "ix_blob_objects_verified_at",
        "blob_objects",
        ["verified_at", "id"],
        sqlite_where=_HAS_BYTES,
        postgresql_where=_HAS_BYTES,
    )


def downgrade() -> None:
    op.drop_index("ix_blob_objects_verified_at", "blob_objects")

"""Tell how it was shown that a backup can be restored."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0066"
down_revision = "0065"


def upgrade() -> None:
    op.add_column("database_backups", sa.Column("verified_by", sa.Text))
    # Until now nothing else was taken for a proof.
    op.execute(
        "UPDATE database_backups SET verified_by = 'checksums' WHERE verified_at IS NOT NULL"
    )


def downgrade() -> None:
    op.drop_column("database_backups", "verified_by")

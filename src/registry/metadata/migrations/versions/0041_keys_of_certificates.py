"""Let certificates name the KMS key that seals theirs, and note that their end was told."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import Id

revision = "0041"
down_revision = "0040"


def upgrade() -> None:
    op.add_column("certificates", sa.Column("kms_key_id", Id))
    op.add_column("certificates", sa.Column("warned_days", sa.Integer))


def downgrade() -> None:
    """Let certificates be renewed whose keys cannot be opened then; uploads are not."""
    op.execute(
        "UPDATE certificates SET renew_at = issued_at"
        " WHERE kms_key_id IS NOT NULL AND renew_at IS NOT NULL"
    )
    op.drop_column("certificates", "warned_days")
    op.drop_column("certificates", "kms_key_id")

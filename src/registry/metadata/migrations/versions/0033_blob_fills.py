"""Note which blobs are being fetched from an upstream, and by which upload session."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import DigestText, Id

revision = "0033"
down_revision = "0032"


def upgrade() -> None:
    op.create_table(
        "blob_fills",
        sa.Column("account_id", Id, sa.ForeignKey("accounts.id"), primary_key=True),
        sa.Column("digest", DigestText, primary_key=True),
        sa.Column("upload_id", Id, sa.ForeignKey("uploads.id", ondelete="CASCADE"), nullable=False),
        sa.Column("size", sa.BigInteger),
    )
    op.create_index("uq_blob_fills_upload_id", "blob_fills", ["upload_id"], unique=True)


def downgrade() -> None:
    op.drop_table("blob_fills")

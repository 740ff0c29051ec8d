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
        sa.Column("account_id", Id, nullable=False),
        sa.Column("digest", DigestText, nullable=False),
        sa.Column("upload_id", Id, nullable=False),
        sa.Column("size", sa.BigInteger),
        sa.PrimaryKeyConstraint("account_id", "digest", name=op.f("pk_blob_fills")),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_blob_fills_account_id")
        ),
        sa.ForeignKeyConstraint(
            ["upload_id"], ["uploads.id"], name=op.f("fk_blob_fills_upload_id"), ondelete="CASCADE"
        ),
    )
    op.create_index("uq_blob_fills_upload_id", "blob_fills", ["upload_id"], unique=True)


def downgrade() -> None:
    op.drop_table("blob_fills")

"""Note what else needs a bucket."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import Id

revision = "0068"
down_revision = "0067"


def upgrade() -> None:
    op.create_table(
        "bucket_uses",
        sa.Column("bucket_id", Id, nullable=False),
        sa.Column("user_id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("words", sa.Text, nullable=False),
        sa.ForeignKeyConstraint(
            ["bucket_id", "account_id"],
            ["storage_buckets.id", "storage_buckets.account_id"],
            name="fk_bucket_uses_bucket",
        ),
        sa.PrimaryKeyConstraint("bucket_id", "user_id", name=op.f("pk_bucket_uses")),
    )
    op.create_index(
        "ix_bucket_uses_account_id_bucket_id", "bucket_uses", ["account_id", "bucket_id"]
    )
    op.execute(
        "INSERT INTO bucket_uses (bucket_id, user_id, account_id, words)"
        " SELECT b.id, c.id, c.account_id, 'database cluster ' || c.name FROM database_clusters c"
        " JOIN storage_buckets b ON b.id = c.bucket AND b.account_id = c.account_id"
    )


def downgrade() -> None:
    op.drop_table("bucket_uses")

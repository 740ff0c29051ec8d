"""Let pieces of buckets be scrubbed and shredded, and count what an account has in buckets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import Id

revision = "0040"
down_revision = "0039"

_IS_DUE = sa.text("damage IS NULL AND condemned_at IS NULL AND encoding <> 'shredded'")
_IS_DAMAGED = sa.text("damage IS NOT NULL")
_IS_KEYED = sa.text("kms_key_id IS NOT NULL")


def upgrade() -> None:
    zero = sa.text("0")
    op.add_column("storage_pieces", sa.Column("damage", sa.String(16)))
    op.add_column("storage_pieces", sa.Column("damaged_at", sa.BigInteger))
    op.add_column(
        "storage_pieces",
        sa.Column("verified_at", sa.BigInteger, nullable=False, server_default=zero),
    )
    op.execute("UPDATE storage_pieces SET verified_at = created_at")
    for name, columns, where in (
        ("ix_storage_pieces_verified_at", ["verified_at", "id"], _IS_DUE),
        ("ix_storage_pieces_damaged", ["account_id", "id"], _IS_DAMAGED),
        ("ix_storage_pieces_kms_key_id", ["kms_key_id", "encoding"], _IS_KEYED),
    ):
        op.create_index(name, "storage_pieces", columns, sqlite_where=where, postgresql_where=where)
    op.create_table(
        "storage_account_bytes",
        sa.Column(
            "account_id",
            Id,
            sa.ForeignKey("accounts.id", name=op.f("fk_storage_account_bytes_account_id")),
            nullable=False,
        ),
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "shard", name=op.f("pk_storage_account_bytes")),
    )
    op.execute(
        "INSERT INTO storage_account_bytes (account_id, shard, bytes)"
        " SELECT account_id, 0, SUM(size) FROM storage_pieces GROUP BY account_id"
    )


def downgrade() -> None:
    op.drop_table("storage_account_bytes")
    for name in ("kms_key_id", "damaged", "verified_at"):
        op.drop_index(f"ix_storage_pieces_{name}", "storage_pieces")
    for name in ("verified_at", "damaged_at", "damage"):
        op.drop_column("storage_pieces", name)

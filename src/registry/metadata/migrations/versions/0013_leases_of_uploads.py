"""Keep who may append to an upload in its row: a lease that ends, with a token that fences it.

`stage_id` names the staged bytes of an upload whose lease was taken from a holder that may live
still: its successor goes on in a copy.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    with op.batch_alter_table("uploads", schema=None) as batch_op:
        batch_op.add_column(sa.Column("stage_id", sa.String(length=36), nullable=True))
        batch_op.add_column(sa.Column("stage_shared", sa.Boolean(), nullable=True))
        batch_op.add_column(sa.Column("lease_holder", sa.String(length=36), nullable=True))
        batch_op.add_column(sa.Column("lease_token", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("leased_until", sa.BigInteger(), nullable=True))
    op.execute("UPDATE uploads SET lease_token = 0, stage_shared = false")
    with op.batch_alter_table("uploads", schema=None) as batch_op:
        batch_op.alter_column("stage_shared", existing_type=sa.Boolean(), nullable=False)
        batch_op.alter_column("lease_token", existing_type=sa.BigInteger(), nullable=False)
        batch_op.create_check_constraint(
            batch_op.f("ck_uploads_lease"), "(lease_holder IS NULL) = (leased_until IS NULL)"
        )
        batch_op.create_index(
            "uq_uploads_stage_id",
            ["stage_id"],
            unique=True,
            sqlite_where=sa.text("stage_id IS NOT NULL"),
            postgresql_where=sa.text("stage_id IS NOT NULL"),
        )


def downgrade() -> None:
    with op.batch_alter_table("uploads", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_uploads_stage_id",
            sqlite_where=sa.text("stage_id IS NOT NULL"),
            postgresql_where=sa.text("stage_id IS NOT NULL"),
        )
        batch_op.drop_constraint(batch_op.f("ck_uploads_lease"), type_="check")
        batch_op.drop_column("leased_until")
        batch_op.drop_column("lease_token")
        batch_op.drop_column("lease_holder")
        batch_op.drop_column("stage_shared")
        batch_op.drop_column("stage_id")

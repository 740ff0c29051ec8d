"""Keep the size and the pulls of each repository by day."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.create_table(
        "repository_days",
        sa.Column("repository_id", sa.String(length=36), nullable=False),
        sa.Column("day", sa.Integer(), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("pulls", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["repository_id"],
            ["repositories.id"],
            name=op.f("fk_repository_days_repository_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("repository_id", "day", name=op.f("pk_repository_days")),
    )
    for columns in (["account_id", "day"], ["day"]):
        name = op.f(f"ix_repository_days_{'_'.join(columns)}")
        op.create_index(name, "repository_days", columns, unique=False)


def downgrade() -> None:
    op.drop_table("repository_days")

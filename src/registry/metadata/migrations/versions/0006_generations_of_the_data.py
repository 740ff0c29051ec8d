"""Add the generations of the data; the folder of the blobs names the last one too.

If the database does not know the generation in the folder, it is older than the blobs or another's:
then nothing is collected.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "store_generations",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("noted_at", sa.BigInteger(), nullable=False),
        sa.Column("accepted_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_store_generations")),
    )
    for column in ("noted_at", "accepted_at"):
        op.create_index(op.f(f"ix_store_generations_{column}"), "store_generations", [column])


def downgrade() -> None:
    op.drop_table("store_generations")

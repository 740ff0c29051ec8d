"""Add how many bytes of blobs accounts with a limit have.

An account is counted when a limit is first met, so nothing is filled in.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import Id

revision = "0060"
down_revision = "0059"


def upgrade() -> None:
    op.create_table(
        "stored_bytes",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_stored_bytes_account_id")
        ),
        sa.PrimaryKeyConstraint("account_id", name=op.f("pk_stored_bytes")),
        sa.CheckConstraint("bytes >= 0", name=op.f("ck_stored_bytes_bytes")),
    )


def downgrade() -> None:
    op.drop_table("stored_bytes")

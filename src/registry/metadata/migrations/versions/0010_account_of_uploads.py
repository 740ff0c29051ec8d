"""Keep the account of each upload session, so that an account's open sessions can be counted.

Both counts, of a repository and of an account, are read off an index by when sessions expire.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("uploads", sa.Column("account_id", sa.String(length=36), nullable=True))
    op.execute(
        "UPDATE uploads SET account_id = (SELECT repositories.account_id FROM repositories"
        " WHERE repositories.id = uploads.repository_id)"
    )
    with op.batch_alter_table("uploads", schema=None) as batch_op:
        batch_op.alter_column("account_id", existing_type=sa.String(length=36), nullable=False)
        batch_op.drop_constraint(batch_op.f("fk_uploads_repository_id"), type_="foreignkey")
        batch_op.create_foreign_key(
            batch_op.f("fk_uploads_repository_id_account_id"),
            "repositories",
            ["repository_id", "account_id"],
            ["id", "account_id"],
        )
        batch_op.drop_index(batch_op.f("ix_uploads_repository_id"))
        batch_op.create_index(
            batch_op.f("ix_uploads_repository_id_expires_at"),
            ["repository_id", "expires_at"],
            unique=False,
        )
        batch_op.create_index(
            batch_op.f("ix_uploads_account_id_expires_at"),
            ["account_id", "expires_at"],
            unique=False,
        )


def downgrade() -> None:
    with op.batch_alter_table("uploads", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_uploads_account_id_expires_at"))
        batch_op.drop_index(batch_op.f("ix_uploads_repository_id_expires_at"))
        batch_op.create_index(
            batch_op.f("ix_uploads_repository_id"), ["repository_id"], unique=False
        )
        batch_op.drop_constraint(
            batch_op.f("fk_uploads_repository_id_account_id"), type_="foreignkey"
        )
        batch_op.create_foreign_key(
            batch_op.f("fk_uploads_repository_id"), "repositories", ["repository_id"], ["id"]
        )
        batch_op.drop_column("account_id")

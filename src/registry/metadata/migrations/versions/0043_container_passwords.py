"""Add named passwords with which persons log container clients in."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import ByteOrdered, Id, Moment

revision = "0043"
down_revision = "0042"


def upgrade() -> None:
    op.create_table(
        "container_passwords",
        sa.Column("id", Id, nullable=False),
        sa.Column("user_id", Id, nullable=False),
        sa.Column("role_id", Id, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("password_sha256", sa.String(64), nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("expires_at", Moment, nullable=False),
        sa.Column("last_used_at", Moment),
        sa.ForeignKeyConstraint(
            ["role_id", "user_id"],
            ["role_assignments.role_id", "role_assignments.user_id"],
            name=op.f("fk_container_passwords_role_id_user_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_container_passwords")),
        sa.UniqueConstraint("user_id", "name", name=op.f("uq_container_passwords_user_id_name")),
    )
    op.create_index(
        op.f("ix_container_passwords_expires_at"), "container_passwords", ["expires_at"]
    )
    op.create_index(
        op.f("ix_container_passwords_role_id_user_id"),
        "container_passwords",
        ["role_id", "user_id"],
    )


def downgrade() -> None:
    op.drop_table("container_passwords")

"""Let people of several organizations have one e-mail address, and invite addresses by a code.

An address is unique among the members of an organization and the people it added. Who was added
together with a membership belongs to that organization. A pending invitation was a membership of a
known person; it becomes an invitation without a code, which its organization can renew.
"""

from __future__ import annotations

import uuid

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_WEEK = 7 * 24 * 3600 * 1_000_000
_EMAIL = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_HOMES = """
UPDATE users SET home_organization_id = (
  SELECT min(m.organization_id) FROM memberships m JOIN organizations o ON o.id = m.organization_id
  WHERE m.user_id = users.id AND m.created_at = users.created_at AND NOT o.is_personal
)"""
_EMAILS = "UPDATE memberships SET email = (SELECT email FROM users WHERE users.id = user_id)"


def upgrade() -> None:
    op.create_table(
        "invitations",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("organization_id", sa.String(length=36), nullable=False),
        sa.Column("email", _EMAIL, nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("code_sha256", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "role IN ('owner', 'member', 'billing')", name=op.f("ck_invitations_role")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_invitations_organization_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_invitations")),
        sa.UniqueConstraint(
            "organization_id", "email", name=op.f("uq_invitations_organization_id_email")
        ),
    )
    op.create_index("ix_invitations_expires_at", "invitations", ["expires_at"])
    _move_invitations()
    with op.batch_alter_table("users", schema=None) as batch_op:
        batch_op.add_column(sa.Column("home_organization_id", sa.String(length=36), nullable=True))
        batch_op.drop_constraint(batch_op.f("uq_users_email"), type_="unique")
        batch_op.create_unique_constraint(
            batch_op.f("uq_users_home_organization_id_email"), ["home_organization_id", "email"]
        )
        batch_op.create_unique_constraint(batch_op.f("uq_users_id_email"), ["id", "email"])
        batch_op.create_index(batch_op.f("ix_users_email"), ["email"], unique=False)
        batch_op.create_foreign_key(
            batch_op.f("fk_users_home_organization_id"),
            "organizations",
            ["home_organization_id"],
            ["id"],
            ondelete="SET NULL",
        )
    op.execute(_HOMES)
    op.add_column("memberships", sa.Column("email", _EMAIL, nullable=True))
    op.execute(_EMAILS)
    with op.batch_alter_table("memberships", schema=None) as batch_op:
        batch_op.alter_column("email", existing_type=_EMAIL, nullable=False)
        batch_op.drop_constraint(batch_op.f("ck_memberships_status"), type_="check")
        batch_op.drop_column("status")
        batch_op.drop_constraint(batch_op.f("fk_memberships_user_id"), type_="foreignkey")
        batch_op.create_foreign_key(
            batch_op.f("fk_memberships_user_id_email"),
            "users",
            ["user_id", "email"],
            ["id", "email"],
        )
        batch_op.create_unique_constraint(
            batch_op.f("uq_memberships_organization_id_email"), ["organization_id", "email"]
        )


def downgrade() -> None:
    """Undo it; fails, and changes nothing, when two persons have one address."""
    op.add_column(
        "memberships",
        sa.Column("status", sa.String(length=16), server_default="active", nullable=False),
    )
    with op.batch_alter_table("memberships", schema=None) as batch_op:
        batch_op.alter_column(
            "status", existing_type=sa.String(length=16), nullable=False, server_default=None
        )
        batch_op.create_check_constraint(
            batch_op.f("ck_memberships_status"), "status IN ('invited', 'active')"
        )
        batch_op.drop_constraint(batch_op.f("uq_memberships_organization_id_email"), type_="unique")
        batch_op.drop_constraint(batch_op.f("fk_memberships_user_id_email"), type_="foreignkey")
        batch_op.create_foreign_key(
            batch_op.f("fk_memberships_user_id"), "users", ["user_id"], ["id"]
        )
        batch_op.drop_column("email")
    with op.batch_alter_table("users", schema=None) as batch_op:
        batch_op.drop_constraint(batch_op.f("fk_users_home_organization_id"), type_="foreignkey")
        batch_op.drop_constraint(batch_op.f("uq_users_home_organization_id_email"), type_="unique")
        batch_op.drop_constraint(batch_op.f("uq_users_id_email"), type_="unique")
        batch_op.drop_index(batch_op.f("ix_users_email"))
        batch_op.create_unique_constraint(batch_op.f("uq_users_email"), ["email"])
        batch_op.drop_column("home_organization_id")
    op.drop_table("invitations")


def _move_invitations() -> None:
    connection = op.get_bind()
    pending = connection.execute(
        sa.text(
            "SELECT m.organization_id, u.email, m.role, m.created_at FROM memberships m"
            " JOIN users u ON u.id = m.user_id WHERE m.status = 'invited'"
        )
    ).all()
    for organization_id, email, role, created_at in pending:
        connection.execute(
            sa.text(
                "INSERT INTO invitations VALUES"
                " (:id, :organization_id, :email, :role, '', :created_at, :expires_at)"
            ),
            {
                "id": str(uuid.uuid4()),
                "organization_id": organization_id,
                "email": email,
                "role": role,
                "created_at": created_at,
                "expires_at": created_at + _WEEK,
            },
        )
    op.execute("DELETE FROM memberships WHERE status = 'invited'")

"""Let people of an organization sign in at its identity provider, and its groups have roles."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    op.create_table(
        "spent_states",
        sa.Column("state_sha256", sa.String(length=64), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("state_sha256", name=op.f("pk_spent_states")),
    )
    with op.batch_alter_table("spent_states", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_spent_states_expires_at"), ["expires_at"], unique=False
        )

    op.create_table(
        "identity_providers",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("organization_id", sa.String(length=36), nullable=False),
        sa.Column(
            "name", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("client_id", sa.Text(), nullable=False),
        sa.Column("client_secret_sealed", sa.LargeBinary(), nullable=True),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("groups_claim", sa.Text(), nullable=False),
        sa.Column("email_verified_claim", sa.Text(), nullable=False),
        sa.Column("email_domains", sa.Text(), nullable=False),
        sa.Column("creates_people", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "status IN ('active', 'inactive')", name=op.f("ck_identity_providers_status")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_identity_providers_organization_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_identity_providers")),
        sa.UniqueConstraint(
            "organization_id", "name", name=op.f("uq_identity_providers_organization_id_name")
        ),
    )
    with op.batch_alter_table("identity_providers", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_identity_providers_name"), ["name"], unique=False)

    op.create_table(
        "provider_subjects",
        sa.Column("provider_id", sa.String(length=36), nullable=False),
        sa.Column(
            "subject", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("user_id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["provider_id"],
            ["identity_providers.id"],
            name=op.f("fk_provider_subjects_provider_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_provider_subjects_user_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("provider_id", "subject", name=op.f("pk_provider_subjects")),
        sa.UniqueConstraint(
            "provider_id", "user_id", name=op.f("uq_provider_subjects_provider_id_user_id")
        ),
    )
    with op.batch_alter_table("provider_subjects", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_provider_subjects_user_id"), ["user_id"], unique=False)

    op.create_table(
        "group_assignments",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("role_id", sa.String(length=36), nullable=False),
        sa.Column("provider_id", sa.String(length=36), nullable=False),
        sa.Column(
            "group_name",
            sa.Text().with_variant(sa.Text(collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["provider_id"],
            ["identity_providers.id"],
            name=op.f("fk_group_assignments_provider_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["role_id"], ["roles.id"], name=op.f("fk_group_assignments_role_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_group_assignments")),
        sa.UniqueConstraint(
            "role_id",
            "provider_id",
            "group_name",
            name=op.f("uq_group_assignments_role_id_provider_id_group_name"),
        ),
    )
    with op.batch_alter_table("group_assignments", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_group_assignments_provider_id_group_name"),
            ["provider_id", "group_name"],
            unique=False,
        )

    with op.batch_alter_table("role_assignments", schema=None) as batch_op:
        batch_op.add_column(sa.Column("identity_provider_id", sa.String(length=36), nullable=True))
        batch_op.create_index(
            batch_op.f("ix_role_assignments_identity_provider_id"),
            ["identity_provider_id"],
            unique=False,
        )
        batch_op.create_foreign_key(
            batch_op.f("fk_role_assignments_identity_provider_id"),
            "identity_providers",
            ["identity_provider_id"],
            ["id"],
            ondelete="CASCADE",
        )


def downgrade() -> None:
    with op.batch_alter_table("role_assignments", schema=None) as batch_op:
        batch_op.drop_constraint(
            batch_op.f("fk_role_assignments_identity_provider_id"), type_="foreignkey"
        )
        batch_op.drop_index(batch_op.f("ix_role_assignments_identity_provider_id"))
        batch_op.drop_column("identity_provider_id")

    with op.batch_alter_table("group_assignments", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_group_assignments_provider_id_group_name"))

    op.drop_table("group_assignments")
    with op.batch_alter_table("provider_subjects", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_provider_subjects_user_id"))

    op.drop_table("provider_subjects")
    with op.batch_alter_table("identity_providers", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_identity_providers_name"))

    op.drop_table("identity_providers")
    with op.batch_alter_table("spent_states", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_spent_states_expires_at"))

    op.drop_table("spent_states")

"""Add keys and their versions; the platform keys of accounts are added at the next start."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"

_IS_NAMED = sa.text("name IS NOT NULL")
_IS_PLATFORM = sa.text("origin = 'platform'")
_IS_PENDING = sa.text("state = 'pending_deletion'")


def upgrade() -> None:
    name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "kms_keys",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column("region", name, nullable=False),
        sa.Column("name", name, nullable=True),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("key_spec", sa.String(length=16), nullable=False),
        sa.Column("key_usage", sa.String(length=24), nullable=False),
        sa.Column("state", sa.String(length=24), nullable=False),
        sa.Column("origin", sa.String(length=16), nullable=False),
        sa.Column("current_version", sa.Integer(), nullable=False),
        sa.Column("deletion_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "key_spec IN ('aes-256', 'hmac-256', 'rsa-2048', 'rsa-4096', 'ecdsa-p256')",
            name=op.f("ck_kms_keys_key_spec"),
        ),
        sa.CheckConstraint(
            "key_usage IN ('encrypt_decrypt', 'generate_verify_mac', 'sign_verify')",
            name=op.f("ck_kms_keys_key_usage"),
        ),
        sa.CheckConstraint(
            "state IN ('enabled', 'disabled', 'pending_deletion', 'deleted')",
            name=op.f("ck_kms_keys_state"),
        ),
        sa.CheckConstraint("origin IN ('customer', 'platform')", name=op.f("ck_kms_keys_origin")),
        sa.CheckConstraint("current_version > 0", name=op.f("ck_kms_keys_current_version")),
        sa.CheckConstraint(
            "(state = 'deleted') = (name IS NULL)", name=op.f("ck_kms_keys_deleted_name")
        ),
        sa.CheckConstraint(
            "(state IN ('pending_deletion', 'deleted')) = (deletion_at IS NOT NULL)",
            name=op.f("ck_kms_keys_deletion_at"),
        ),
        sa.CheckConstraint(
            "origin = 'customer' OR state = 'enabled'", name=op.f("ck_kms_keys_platform_state")
        ),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_kms_keys_account_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_kms_keys")),
        sa.UniqueConstraint("id", "account_id", name=op.f("uq_kms_keys_id_account_id")),
        sa.UniqueConstraint("id", "name", name=op.f("uq_kms_keys_id_name")),
    )
    op.create_index("ix_kms_keys_account_id_id", "kms_keys", ["account_id", "id"])
    op.create_index(
        "uq_kms_keys_name",
        "kms_keys",
        ["account_id", "region", "name"],
        unique=True,
        sqlite_where=_IS_NAMED,
        postgresql_where=_IS_NAMED,
    )
    op.create_index(
        "uq_kms_keys_platform",
        "kms_keys",
        ["account_id"],
        unique=True,
        sqlite_where=_IS_PLATFORM,
        postgresql_where=_IS_PLATFORM,
    )
    op.create_index(
        "ix_kms_keys_deletion_at",
        "kms_keys",
        ["deletion_at"],
        sqlite_where=_IS_PENDING,
        postgresql_where=_IS_PENDING,
    )
    op.create_table(
        "kms_key_versions",
        sa.Column("key_id", sa.String(length=36), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("key_name", name, nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column("provider", sa.String(length=16), nullable=False),
        sa.Column("wrapped_material", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("version > 0", name=op.f("ck_kms_key_versions_version")),
        sa.CheckConstraint(
            "provider IN ('embedded', 'aws')", name=op.f("ck_kms_key_versions_provider")
        ),
        sa.ForeignKeyConstraint(
            ["key_id", "key_name"],
            ["kms_keys.id", "kms_keys.name"],
            name=op.f("fk_kms_key_versions_key_name"),
        ),
        sa.ForeignKeyConstraint(
            ["key_id", "account_id"],
            ["kms_keys.id", "kms_keys.account_id"],
            name=op.f("fk_kms_key_versions_key_account"),
        ),
        sa.PrimaryKeyConstraint("key_id", "version", name=op.f("pk_kms_key_versions")),
    )


def downgrade() -> None:
    op.drop_table("kms_key_versions")
    op.drop_table("kms_keys")

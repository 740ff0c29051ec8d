"""The tables of keys and their versions."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from cloudcore.db.schema import ByteOrdered, Id, Moment, metadata

IS_NAMED: Final = text("name IS NOT NULL")
IS_PLATFORM: Final = text("origin = 'platform'")
IS_DELETED: Final = text("state = 'deleted'")
IS_PENDING: Final = text("state = 'pending_deletion'")

kms_keys = Table(
    "kms_keys",
    metadata,
    Column("id", Id, primary_key=True),
    Column("account_id", Id, ForeignKey("accounts.id"), nullable=False),
    Column("region", ByteOrdered, nullable=False),
    Column("name", ByteOrdered),  # null once deleted
    Column("description", Text, nullable=False),
    Column("tags", Text, nullable=False),  # a JSON object
    Column("key_spec", String(16), nullable=False),
    Column("key_usage", String(24), nullable=False),
    Column("state", String(24), nullable=False),
    Column("origin", String(16), nullable=False),
    Column("current_version", Integer, nullable=False),
    Column("deletion_at", Moment),  # when it will be, or was, deleted
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    CheckConstraint(
        "key_spec IN ('aes-256', 'hmac-256', 'rsa-2048', 'rsa-4096', 'ecdsa-p256')", name="key_spec"
    ),
    CheckConstraint(
        "key_usage IN ('encrypt_decrypt', 'generate_verify_mac', 'sign_verify')", name="key_usage"
    ),
    CheckConstraint(
        "state IN ('enabled', 'disabled', 'pending_deletion', 'deleted')", name="state"
    ),
    CheckConstraint("origin IN ('customer', 'platform')", name="origin"),
    CheckConstraint("current_version > 0", name="current_version"),
    CheckConstraint("(state = 'deleted') = (name IS NULL)", name="deleted_name"),
    CheckConstraint(
        "(state IN ('pending_deletion', 'deleted')) = (deletion_at IS NOT NULL)",
        name="deletion_at",
    ),
    CheckConstraint("origin = 'customer' OR state = 'enabled'", name="platform_state"),
    UniqueConstraint("id", "account_id"),
    UniqueConstraint("id", "name"),
    Index("ix_kms_keys_account_id_id", "account_id", "id"),
    Index(
        "uq_kms_keys_name",
        "account_id",
        "region",
        "name",
        unique=True,
        sqlite_where=IS_NAMED,
        postgresql_where=IS_NAMED,
    ),
    Index(
        "uq_kms_keys_platform",
        "account_id",
        unique=True,
        sqlite_where=IS_PLATFORM,
        postgresql_where=IS_PLATFORM,
    ),
    Index(
        "ix_kms_keys_deleted",
        "id",
        sqlite_where=IS_DELETED,
        postgresql_where=IS_DELETED,
    ),
    Index(
        "ix_kms_keys_deletion_at",
        "deletion_at",
        sqlite_where=IS_PENDING,
        postgresql_where=IS_PENDING,
    ),
)

# The name is here for the foreign key alone: a key that has material keeps its name, so a deleted
# key, which has none, has no material either.
kms_key_versions = Table(
    "kms_key_versions",
    metadata,
    Column("key_id", Id, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("key_name", ByteOrdered, nullable=False),
    Column("account_id", Id, nullable=False),
    Column("provider", String(16), nullable=False),  # that can unwrap the material
    Column("wrapped_material", LargeBinary, nullable=False),
    Column("created_at", Moment, nullable=False),
    ForeignKeyConstraint(
        ["key_id", "key_name"],
        ["kms_keys.id", "kms_keys.name"],
        name="fk_kms_key_versions_key_name",
    ),
    ForeignKeyConstraint(
        ["key_id", "account_id"],
        ["kms_keys.id", "kms_keys.account_id"],
        name="fk_kms_key_versions_key_account",
    ),
    CheckConstraint("version > 0", name="version"),
    CheckConstraint("provider IN ('embedded', 'aws')", name="provider"),
)
TABLES: Final = (kms_keys, kms_key_versions)

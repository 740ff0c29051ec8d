"""The tables of keys and their versions."""

from __future__ import annotations

from typing import Final, get_args

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    UniqueConstraint,
    text,
)

from cloudcore.db.schema import ByteOrdered, Id, Moment, metadata
from cloudcore.kms.key import KEY, KeyOrigin, KeySpec, KeyState, KeyUsage
from cloudcore.kms.rules import KeyMissing
from cloudcore.resources.rows import Rows, one_of

_IS_NAMED: Final = text("name IS NOT NULL")
IS_PLATFORM: Final = text("origin = 'platform'")
_IS_DELETED: Final = text("state = 'deleted'")
IS_PENDING: Final = text("state = 'pending_deletion'")

KEY_ROWS: Final = Rows(
    KEY,
    one_of("key_spec", *get_args(KeySpec)),
    one_of("key_usage", *get_args(KeyUsage)),
    one_of("state", *get_args(KeyState)),
    one_of("origin", *get_args(KeyOrigin)),
    CheckConstraint("current_version > 0", name="current_version"),
    CheckConstraint("(state = 'deleted') = (name IS NULL)", name="deleted_name"),
    CheckConstraint(
        "(state IN ('pending_deletion', 'deleted')) = (deletion_at IS NOT NULL)",
        name="deletion_at",
    ),
    CheckConstraint("origin = 'customer' OR state = 'enabled'", name="platform_state"),
    UniqueConstraint("id", "name"),
    Index(
        "uq_kms_keys_platform",
        "account_id",
        unique=True,
        sqlite_where=IS_PLATFORM,
        postgresql_where=IS_PLATFORM,
    ),
    Index("ix_kms_keys_deleted", "id", sqlite_where=_IS_DELETED, postgresql_where=_IS_DELETED),
    Index(
        "ix_kms_keys_deletion_at",
        "deletion_at",
        sqlite_where=IS_PENDING,
        postgresql_where=IS_PENDING,
    ),
    unique=Index(
        "uq_kms_keys_name",
        "account_id",
        "region",
        "name",
        unique=True,
        sqlite_where=_IS_NAMED,
        postgresql_where=_IS_NAMED,
    ),
    types={
        "key_spec": String(16),
        "key_usage": String(24),
        "state": String(24),
        "origin": String(16),
        "current_version": Integer(),
    },
    missing=KeyMissing,
)
kms_keys: Final = KEY_ROWS.table

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

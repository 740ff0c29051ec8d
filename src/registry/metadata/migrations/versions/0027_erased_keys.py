"""Index what deleted keys have wrapped, and objects that are not their digest's current one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"

_WRAPS = "ix_blob_object_keys_kms_key_id_object_id"
_INDEXES = (
    (
        "ix_blob_object_keys_erasable",
        "blob_object_keys",
        ["kms_key_id", "object_id"],
        sa.text("wrapped_data_key IS NOT NULL"),
    ),
    ("ix_blob_objects_replaced", "blob_objects", ["account_id", "id"], sa.text("NOT is_current")),
    ("ix_kms_keys_deleted", "kms_keys", ["id"], sa.text("state = 'deleted'")),
)


def upgrade() -> None:
    for name, table, columns, where in _INDEXES:
        op.create_index(name, table, columns, sqlite_where=where, postgresql_where=where)
    op.drop_index(op.f(_WRAPS), "blob_object_keys")


def downgrade() -> None:
    op.create_index(op.f(_WRAPS), "blob_object_keys", ["kms_key_id", "object_id"])
    for name, table, _, _ in _INDEXES:
        op.drop_index(name, table)

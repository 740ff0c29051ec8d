"""Make room for the longer names of storage classes; SQLite ignores lengths."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0046"
down_revision = "0045"

_TABLES = ("storage_objects", "storage_uploads")


def upgrade() -> None:
    _resize(16, 32)


def downgrade() -> None:
    """Store as STANDARD what has a name that was not known: all are stored alike."""
    for name in _TABLES:
        table = sa.table(name, sa.column("storage_class"))
        is_new = table.c.storage_class.not_in(("STANDARD", "STANDARD_IA", "GLACIER"))
        op.execute(table.update().where(is_new).values(storage_class="STANDARD"))
    _resize(32, 16)


def _resize(before: int, after: int) -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    for table in _TABLES:
        op.alter_column(
            table,
            "storage_class",
            existing_type=sa.String(length=before),
            type_=sa.String(length=after),
            existing_nullable=False,
        )

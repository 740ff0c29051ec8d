"""Keep who is behind a principal: the person or program that assumed its role.

Rows from before have none.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"

_COLUMNS = (
    ("sessions", "first_source"),
    ("tag_events", "source"),
    ("deleted_tags", "deleted_by_source"),
    ("deleted_manifests", "deleted_by_source"),
    ("repositories", "deleted_by_source"),
    ("image_pins", "created_by_source"),
    ("runs", "started_by_source"),
)


def upgrade() -> None:
    for table, column in _COLUMNS:
        op.add_column(table, sa.Column(column, sa.Text(), nullable=True))


def downgrade() -> None:
    for table, column in reversed(_COLUMNS):
        op.drop_column(table, column)

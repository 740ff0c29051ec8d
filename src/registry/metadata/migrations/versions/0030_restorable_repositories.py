"""Index the deleted repositories of an account that can be restored, to count them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"

_NAME = "ix_repositories_restorable"
_WHERE = sa.text("restorable_until IS NOT NULL")


def upgrade() -> None:
    op.create_index(
        _NAME,
        "repositories",
        ["account_id", "restorable_until"],
        sqlite_where=_WHERE,
        postgresql_where=_WHERE,
    )


def downgrade() -> None:
    op.drop_index(_NAME, "repositories")

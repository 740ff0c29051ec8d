"""Count the changes of a repository's tags and images, so that lists of them can be proved."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    revision = sa.Column("revision", sa.BigInteger(), server_default=sa.text("0"), nullable=False)
    op.add_column("repositories", revision)


def downgrade() -> None:
    op.drop_column("repositories", "revision")

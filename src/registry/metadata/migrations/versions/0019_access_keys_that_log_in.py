"""Let an account choose that access keys themselves are credentials of container clients."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    with op.batch_alter_table("registry_settings", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column(
                "access_key_login", sa.Boolean(), server_default=sa.text("false"), nullable=False
            )
        )


def downgrade() -> None:
    with op.batch_alter_table("registry_settings", schema=None) as batch_op:
        batch_op.drop_column("access_key_login")

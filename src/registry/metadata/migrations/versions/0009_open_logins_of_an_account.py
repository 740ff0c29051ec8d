"""Index what is open of an account, so that its logins and role sessions can be counted to a cap.

Only what was not revoked is in these indexes, in the order in which it ends.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0004"


def upgrade() -> None:
    op.create_index(
        "ix_login_credentials_open",
        "login_credentials",
        ["account_id", "expires_at"],
        sqlite_where=sa.text("revoked_at IS NULL"),
        postgresql_where=sa.text("revoked_at IS NULL"),
    )
    op.create_index(
        "ix_sessions_open",
        "sessions",
        ["role_id", "expires_at"],
        sqlite_where=sa.text("revoked_at IS NULL"),
        postgresql_where=sa.text("revoked_at IS NULL"),
    )


def downgrade() -> None:
    op.drop_index("ix_sessions_open", "sessions")
    op.drop_index("ix_login_credentials_open", "login_credentials")

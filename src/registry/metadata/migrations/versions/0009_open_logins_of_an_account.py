"""Index the open logins and role sessions of an account, to count them up to a cap.

The count reads the index alone. The new index on sessions replaces the one on the role.
"""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_index(
        "ix_login_credentials_account_id_revoked_at_expires_at",
        "login_credentials",
        ["account_id", "revoked_at", "expires_at"],
    )
    op.create_index(
        "ix_sessions_role_id_revoked_at_expires_at",
        "sessions",
        ["role_id", "revoked_at", "expires_at"],
    )
    op.drop_index("ix_sessions_role_id", "sessions")


def downgrade() -> None:
    op.create_index("ix_sessions_role_id", "sessions", ["role_id"])
    op.drop_index("ix_sessions_role_id_revoked_at_expires_at", "sessions")
    op.drop_index("ix_login_credentials_account_id_revoked_at_expires_at", "login_credentials")

"""Let families have key sets of their own: no list of them in the database."""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    with op.batch_alter_table("signing_keys") as table:
        table.drop_constraint(op.f("ck_signing_keys_audience"), type_="check")


def downgrade() -> None:
    with op.batch_alter_table("signing_keys") as table:
        table.create_check_constraint(
            op.f("ck_signing_keys_audience"), "audience IN ('api', 'registry')"
        )

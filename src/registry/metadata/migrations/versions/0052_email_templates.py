"""Add the templates of email."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import ByteOrdered, Id, Moment

revision = "0052"
down_revision = "0051"


def upgrade() -> None:
    op.create_table(
        "email_templates",
        sa.Column("id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("html", sa.Text),
        sa.Column("text", sa.Text),
        sa.Column("variables", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_email_templates")),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_email_templates_account_id")
        ),
        sa.UniqueConstraint("id", "account_id", name=op.f("uq_email_templates_id_account_id")),
    )
    op.create_index("ix_email_templates_account_id_id", "email_templates", ["account_id", "id"])
    op.create_index(
        "uq_email_templates_name", "email_templates", ["account_id", "region", "name"], unique=True
    )


def downgrade() -> None:
    op.drop_table("email_templates")

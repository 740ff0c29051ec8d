"""Add the audit log, whose rows of what was done cannot be changed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"

_IS_REFUSAL = sa.text("refusal_key IS NOT NULL")
_REFUSED = "an event of the audit log is never changed"


def upgrade() -> None:
    name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "audit_events",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("owner_id", sa.String(length=36), nullable=False),
        sa.Column("occurred_at", sa.BigInteger(), nullable=False),
        sa.Column("action", name, nullable=False),
        sa.Column("resource", name, nullable=False),
        sa.Column("resources", sa.Text(), nullable=True),
        sa.Column("principal", name, nullable=False),
        sa.Column("source_crn", name, nullable=True),
        sa.Column("source_name", name, nullable=True),
        sa.Column("session_name", sa.Text(), nullable=True),
        sa.Column("plane", sa.String(length=16), nullable=True),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("source_ip", sa.Text(), nullable=True),
        sa.Column("user_agent", sa.Text(), nullable=True),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("details", sa.Text(), nullable=False),
        sa.Column("refusal_key", sa.Text(), nullable=True),
        sa.Column("times", sa.Integer(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "outcome IN ('succeeded', 'refused')", name=op.f("ck_audit_events_outcome")
        ),
        sa.CheckConstraint(
            "(outcome = 'refused') = (refusal_key IS NOT NULL)",
            name=op.f("ck_audit_events_refusal_key"),
        ),
        sa.CheckConstraint("times = 1 OR outcome = 'refused'", name=op.f("ck_audit_events_times")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_events")),
    )
    op.create_index(op.f("ix_audit_events_occurred_at"), "audit_events", ["occurred_at"])
    op.create_index("ix_audit_events_owner", "audit_events", ["owner_id", "occurred_at", "id"])
    op.create_index(
        "ix_audit_events_resource", "audit_events", ["owner_id", "resource", "occurred_at", "id"]
    )
    op.create_index(
        "uq_audit_events_refusal",
        "audit_events",
        ["refusal_key"],
        unique=True,
        sqlite_where=_IS_REFUSAL,
        postgresql_where=_IS_REFUSAL,
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN RAISE EXCEPTION '{_REFUSED}'; END $$"
        )
        op.execute(
            "CREATE TRIGGER audit_events_unchanged BEFORE UPDATE ON audit_events FOR EACH ROW"
            " WHEN (OLD.outcome <> 'refused' OR NEW.outcome <> 'refused')"
            " EXECUTE FUNCTION refuse_audit_change()"
        )
    else:
        op.execute(
            "CREATE TRIGGER audit_events_unchanged BEFORE UPDATE ON audit_events FOR EACH ROW"
            " WHEN OLD.outcome <> 'refused' OR NEW.outcome <> 'refused'"
            f" BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END"
        )


def downgrade() -> None:
    op.drop_table("audit_events")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION refuse_audit_change")

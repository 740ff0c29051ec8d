"""Add the messages of email, their recipients and contents, and the counts of their rates."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import ByteOrdered, Id, Moment

revision = "0056"
down_revision = "0055"

_WAITING = sa.text("status IN ('queued', 'deferred')")
_ENDED = sa.text("ended_at IS NOT NULL")


def upgrade() -> None:
    op.create_table(
        "email_messages",
        sa.Column("id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("sender", sa.Text, nullable=False),
        sa.Column("to", sa.Text, nullable=False),
        sa.Column("cc", sa.Text, nullable=False),
        sa.Column("bcc", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("status", ByteOrdered, nullable=False),
        sa.Column("identity", ByteOrdered, nullable=False),
        sa.Column("identity_id", Id, nullable=False),
        sa.Column("template_id", Id),
        sa.Column("template_name", sa.Text),
        sa.Column("ended_at", Moment),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.CheckConstraint(
            "(status IN ('queued', 'deferred')) = (ended_at IS NULL)",
            name=op.f("ck_email_messages_ended_at"),
        ),
        sa.CheckConstraint(
            "status IN ('queued', 'deferred', 'complained', 'bounced', 'sent', 'suppressed')",
            name=op.f("ck_email_messages_status"),
        ),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_email_messages_account_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_email_messages")),
        sa.UniqueConstraint("id", "account_id", name=op.f("uq_email_messages_id_account_id")),
    )
    op.create_index("ix_email_messages_account_id_id", "email_messages", ["account_id", "id"])
    op.create_index(
        "ix_email_messages_ended_at",
        "email_messages",
        ["ended_at"],
        sqlite_where=_ENDED,
        postgresql_where=_ENDED,
    )
    op.create_index(
        "ix_email_messages_identity", "email_messages", ["account_id", "identity_id", "id"]
    )
    op.create_index(
        "ix_email_messages_waiting",
        "email_messages",
        ["account_id"],
        sqlite_where=_WAITING,
        postgresql_where=_WAITING,
    )

    op.create_table(
        "email_rates",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("identity_id", Id, nullable=False),
        sa.Column("second", sa.BigInteger, nullable=False),
        sa.Column("accepted", sa.Integer, nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_email_rates_account_id")
        ),
        sa.PrimaryKeyConstraint("account_id", "identity_id", name=op.f("pk_email_rates")),
    )
    op.create_index("ix_email_rates_second", "email_rates", ["second"])

    op.create_table(
        "email_contents",
        sa.Column("message_id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("ended_at", Moment),
        sa.ForeignKeyConstraint(
            ["message_id", "account_id"],
            ["email_messages.id", "email_messages.account_id"],
            name="fk_email_contents_message",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("message_id", name=op.f("pk_email_contents")),
    )
    op.create_index(
        "ix_email_contents_ended_at",
        "email_contents",
        ["ended_at"],
        sqlite_where=_ENDED,
        postgresql_where=_ENDED,
    )

    op.create_table(
        "email_recipients",
        sa.Column("message_id", Id, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("folded", ByteOrdered, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("last_attempt_at", Moment),
        sa.Column("source_ip", sa.Text),
        sa.Column("next_attempt_at", Moment),
        sa.CheckConstraint(
            "(status IN ('queued', 'deferred')) = (next_attempt_at IS NOT NULL)",
            name=op.f("ck_email_recipients_next_attempt_at"),
        ),
        sa.CheckConstraint("kind IN ('to', 'cc', 'bcc')", name=op.f("ck_email_recipients_kind")),
        sa.CheckConstraint(
            "status IN ('queued', 'deferred', 'complained', 'bounced', 'sent', 'suppressed')",
            name=op.f("ck_email_recipients_status"),
        ),
        sa.CheckConstraint("attempts >= 0", name=op.f("ck_email_recipients_attempts")),
        sa.ForeignKeyConstraint(
            ["message_id", "account_id"],
            ["email_messages.id", "email_messages.account_id"],
            name="fk_email_recipients_message",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("message_id", "position", name=op.f("pk_email_recipients")),
    )
    op.create_index(
        "ix_email_recipients_folded", "email_recipients", ["account_id", "folded", "message_id"]
    )
    op.create_index(
        "ix_email_recipients_source_ip",
        "email_recipients",
        ["account_id", "source_ip"],
        sqlite_where=_WAITING,
        postgresql_where=_WAITING,
    )


def downgrade() -> None:
    for table in ("email_recipients", "email_contents", "email_rates", "email_messages"):
        op.drop_table(table)

"""Add the sending identities of email."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import ByteOrdered, Id, Moment

revision = "0055"
down_revision = "0054"

_HAS_WORK = sa.text("check_at IS NOT NULL")
_IS_ASKED = sa.text("confirmation_hash IS NOT NULL")


def upgrade() -> None:
    op.create_table(
        "email_identities",
        sa.Column("id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("status", ByteOrdered, nullable=False),
        sa.Column("faults", sa.Text, nullable=False),
        sa.Column("value", ByteOrdered, nullable=False),
        sa.Column("kind", ByteOrdered, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("ip_pool_id", Id),
        sa.Column("verified_at", Moment),
        sa.Column("checked_at", Moment),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("dkim_selector", sa.Text),
        sa.Column("dkim_public", sa.Text),
        sa.Column("dkim_key", sa.LargeBinary),
        sa.Column("check_at", Moment),
        sa.Column("asked", sa.BigInteger, nullable=False),
        sa.Column("confirmation_nonce", sa.Text),
        sa.Column("confirmation_hash", sa.LargeBinary),
        sa.Column("confirmation_expires_at", Moment),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.CheckConstraint(
            "(kind = 'domain') = (dkim_key IS NOT NULL)"
            " AND (dkim_key IS NULL) = (dkim_public IS NULL)"
            " AND (dkim_key IS NULL) = (dkim_selector IS NULL)",
            name=op.f("ck_email_identities_dkim_key"),
        ),
        sa.CheckConstraint(
            "kind = 'address' OR confirmation_hash IS NULL",
            name=op.f("ck_email_identities_confirmation_hash"),
        ),
        sa.CheckConstraint("kind IN ('domain', 'address')", name=op.f("ck_email_identities_kind")),
        sa.CheckConstraint(
            "status <> 'verified' OR verified_at IS NOT NULL",
            name=op.f("ck_email_identities_verified_at"),
        ),
        sa.CheckConstraint(
            "status IN ('pending', 'verified', 'failed')",
            name=op.f("ck_email_identities_status"),
        ),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_email_identities_account_id")
        ),
        sa.ForeignKeyConstraint(
            ["ip_pool_id", "account_id"],
            ["ip_pools.id", "ip_pools.account_id"],
            name="fk_email_identities_ip_pool",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_email_identities")),
        sa.UniqueConstraint("id", "account_id", name=op.f("uq_email_identities_id_account_id")),
    )
    op.create_index("ix_email_identities_account_id_id", "email_identities", ["account_id", "id"])
    op.create_index(
        "ix_email_identities_check_at",
        "email_identities",
        ["check_at"],
        sqlite_where=_HAS_WORK,
        postgresql_where=_HAS_WORK,
    )
    op.create_index("ix_email_identities_ip_pool_id", "email_identities", ["ip_pool_id"])
    op.create_index(
        "uq_email_identities_confirmation_hash",
        "email_identities",
        ["confirmation_hash"],
        unique=True,
        sqlite_where=_IS_ASKED,
        postgresql_where=_IS_ASKED,
    )
    op.create_index(
        "uq_email_identities_value",
        "email_identities",
        ["account_id", "region", "value"],
        unique=True,
    )


def downgrade() -> None:
    op.drop_table("email_identities")

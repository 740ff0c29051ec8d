"""Add dedicated IPs: addresses that one account alone sends mail from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import ByteOrdered, Id, Moment

revision = "0054"
down_revision = "0053"


def upgrade() -> None:
    op.create_table(
        "dedicated_ips",
        sa.Column("id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("address", ByteOrdered, nullable=False),
        sa.Column("warmup_status", sa.Text, nullable=False),
        sa.Column("warmup_percentage", sa.Integer, nullable=False),
        sa.Column("warmup_started_at", Moment),
        sa.Column("ip_pool_id", Id),
        sa.Column("day", sa.BigInteger, nullable=False),
        sa.Column("sent", sa.BigInteger, nullable=False),
        sa.Column("outcomes", sa.LargeBinary, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.CheckConstraint(
            "warmup_status IN ('new', 'warming', 'warmed', 'paused')",
            name=op.f("ck_dedicated_ips_warmup_status"),
        ),
        sa.CheckConstraint("sent >= 0", name=op.f("ck_dedicated_ips_sent")),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_dedicated_ips_account_id")
        ),
        sa.ForeignKeyConstraint(
            ["ip_pool_id", "account_id"],
            ["ip_pools.id", "ip_pools.account_id"],
            name="fk_dedicated_ips_ip_pool",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dedicated_ips")),
        sa.UniqueConstraint("id", "account_id", name=op.f("uq_dedicated_ips_id_account_id")),
    )
    op.create_index("ix_dedicated_ips_account_id_id", "dedicated_ips", ["account_id", "id"])
    op.create_index("ix_dedicated_ips_ip_pool_id", "dedicated_ips", ["ip_pool_id"])
    op.create_index("uq_dedicated_ips_address", "dedicated_ips", ["address"], unique=True)


def downgrade() -> None:
    op.drop_table("dedicated_ips")

"""Add load balancers, their addresses, the pools that they lead to, and what they served."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import ByteOrdered, Id, Moment

revision = "0063"
down_revision = "0062"


def upgrade() -> None:
    op.create_table(
        "load_balancers",
        sa.Column("id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("status", ByteOrdered, nullable=False),
        sa.Column("faults", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("vip", sa.Text, nullable=False),
        sa.Column("replica_count", sa.Integer, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("vpc", sa.Text, nullable=False),
        sa.Column("subnet", sa.Text, nullable=False),
        sa.Column("interface_id", Id),
        sa.Column("security_groups", sa.Text, nullable=False),
        sa.Column("listeners", sa.Text, nullable=False),
        sa.Column("backends", sa.Text, nullable=False),
        sa.Column("role_id", Id),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("applied", sa.BigInteger, nullable=False),
        sa.Column("fingerprints", sa.Text, nullable=False),
        sa.Column("replicas", sa.Text, nullable=False),
        sa.Column("targets", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.CheckConstraint(
            "status IN ('provisioning', 'active', 'updating', 'degraded', 'failed', 'deleting')",
            name=op.f("ck_load_balancers_status"),
        ),
        sa.CheckConstraint(
            "replica_count BETWEEN 1 AND 4", name=op.f("ck_load_balancers_replica_count")
        ),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_load_balancers_account_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_load_balancers")),
        sa.UniqueConstraint("id", "account_id", name=op.f("uq_load_balancers_id_account_id")),
    )
    op.create_index("ix_load_balancers_account_id_id", "load_balancers", ["account_id", "id"])
    op.create_index("ix_load_balancers_node", "load_balancers", ["node", "id"])
    op.create_index(
        "uq_load_balancers_name", "load_balancers", ["account_id", "region", "name"], unique=True
    )
    op.create_table(
        "load_balancer_vips",
        sa.Column("vip", ByteOrdered, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("load_balancer_id", Id, nullable=False),
        _of_balancer("load_balancer_vips"),
        sa.PrimaryKeyConstraint("vip", name=op.f("pk_load_balancer_vips")),
        sa.UniqueConstraint(
            "load_balancer_id", name=op.f("uq_load_balancer_vips_load_balancer_id")
        ),
    )
    op.create_table(
        "load_balancer_pools",
        sa.Column("pool_id", Id, nullable=False),
        sa.Column("load_balancer_id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        _of_balancer("load_balancer_pools"),
        sa.PrimaryKeyConstraint("pool_id", "load_balancer_id", name=op.f("pk_load_balancer_pools")),
    )
    op.create_index(
        "ix_load_balancer_pools_load_balancer_id", "load_balancer_pools", ["load_balancer_id"]
    )
    op.create_table(
        "load_balancer_metrics",
        sa.Column("load_balancer_id", Id, nullable=False),
        sa.Column("replica", sa.Integer, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("served", sa.Text, nullable=False),
        sa.Column("last", sa.Text, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        _of_balancer("load_balancer_metrics"),
        sa.PrimaryKeyConstraint(
            "load_balancer_id", "replica", name=op.f("pk_load_balancer_metrics")
        ),
    )


def _of_balancer(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["load_balancer_id", "account_id"],
        ["load_balancers.id", "load_balancers.account_id"],
        name=op.f(f"fk_{table}_load_balancer"),
    )


def downgrade() -> None:
    op.drop_table("load_balancer_metrics")
    op.drop_table("load_balancer_pools")
    op.drop_table("load_balancer_vips")
    op.drop_table("load_balancers")

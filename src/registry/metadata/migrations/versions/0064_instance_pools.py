"""Add instance pools and their instances."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import ByteOrdered, Id, Moment

revision = "0064"
down_revision = "0063"

_LIVE = sa.text("deleted_at IS NULL")
_DELETED = sa.text("deleted_at IS NOT NULL")
_HAS_INTERFACE = sa.text("interface_id IS NOT NULL")


def upgrade() -> None:
    op.create_table(
        "instance_pools",
        sa.Column("id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("faults", sa.Text, nullable=False),
        sa.Column("node", ByteOrdered, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("image", sa.Text, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("command", sa.Text, nullable=False),
        sa.Column("environment", sa.Text, nullable=False),
        sa.Column("memory_mb", sa.Integer, nullable=False),
        sa.Column("cpu_millis", sa.Integer, nullable=False),
        sa.Column("ports", sa.Text, nullable=False),
        sa.Column("role", Id),
        sa.Column("subnet", Id),
        sa.Column("security_groups", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("image_digest", sa.Text),
        sa.Column("names", sa.Text, nullable=False),
        sa.Column("vpc_id", Id),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("fetched", sa.BigInteger, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.Column("deleted_at", Moment),
        sa.CheckConstraint("fetched <= generation", name=op.f("ck_instance_pools_fetched")),
        sa.CheckConstraint("size >= 0 AND size <= 20", name=op.f("ck_instance_pools_size")),
        sa.CheckConstraint(
            "status IN ('provisioning', 'active', 'scaling', 'degraded', 'deleting')",
            name=op.f("ck_instance_pools_status"),
        ),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_instance_pools_account_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instance_pools")),
        sa.UniqueConstraint("id", "account_id", name=op.f("uq_instance_pools_id_account_id")),
    )
    op.create_index("ix_instance_pools_account_id_id", "instance_pools", ["account_id", "id"])
    op.create_index("ix_instance_pools_node_id", "instance_pools", ["node", "id"])
    op.create_index(
        "ix_instance_pools_deleted_at",
        "instance_pools",
        ["deleted_at"],
        sqlite_where=_DELETED,
        postgresql_where=_DELETED,
    )
    op.create_index(
        "uq_instance_pools_name",
        "instance_pools",
        ["account_id", "region", "name"],
        unique=True,
        sqlite_where=_LIVE,
        postgresql_where=_LIVE,
    )

    op.create_table(
        "instances",
        sa.Column("id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("pool_id", Id, nullable=False),
        sa.Column("node", ByteOrdered, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("address", sa.Text),
        sa.Column("address_ipv6", sa.Text),
        sa.Column("image", sa.Text, nullable=False),
        sa.Column("image_digest", sa.Text, nullable=False),
        sa.Column("started_at", Moment),
        sa.Column("restarts", sa.BigInteger, nullable=False),
        sa.Column("exit_code", sa.BigInteger),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("memory_mb", sa.BigInteger, nullable=False),
        sa.Column("cpu_millis", sa.BigInteger, nullable=False),
        sa.Column("ports", sa.Text, nullable=False),
        sa.Column("interface_id", Id),
        sa.Column("exits", sa.Text, nullable=False),
        sa.Column("not_before", Moment),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.CheckConstraint(
            "status IN ('starting', 'running', 'unhealthy', 'stopping', 'stopped')",
            name=op.f("ck_instances_status"),
        ),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_instances_account_id")
        ),
        sa.ForeignKeyConstraint(
            ["pool_id", "account_id"],
            ["instance_pools.id", "instance_pools.account_id"],
            name="fk_instances_pool",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instances")),
        sa.UniqueConstraint("id", "account_id", name=op.f("uq_instances_id_account_id")),
    )
    op.create_index("ix_instances_account_id_id", "instances", ["account_id", "id"])
    op.create_index("ix_instances_node_id", "instances", ["node", "id"])
    op.create_index("ix_instances_pool_id", "instances", ["pool_id"])
    op.create_index(
        "uq_instances_interface_id",
        "instances",
        ["interface_id"],
        unique=True,
        sqlite_where=_HAS_INTERFACE,
        postgresql_where=_HAS_INTERFACE,
    )


def downgrade() -> None:
    for table in ("instances", "instance_pools"):
        op.drop_table(table)

"""Add database clusters and their backups."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import ByteOrdered, Id, Moment

revision = "0065"
down_revision = "0064"


def upgrade() -> None:
    op.create_table(
        "database_clusters",
        sa.Column("id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("status", ByteOrdered, nullable=False),
        sa.Column("faults", sa.Text, nullable=False),
        sa.Column("node", ByteOrdered, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("engine", sa.Text, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("bucket", Id),
        sa.Column("schedule", sa.Text),
        sa.Column("retention", sa.Text),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("checked_at", Moment),
        sa.Column("bucket_name", sa.Text, nullable=False),
        sa.Column("endpoint", sa.Text),
        sa.Column("secret", sa.LargeBinary),
        sa.Column("memory_mb", sa.Integer, nullable=False),
        sa.Column("cpu_millis", sa.Integer, nullable=False),
        sa.Column("disk_mb", sa.Integer, nullable=False),
        sa.Column("port", sa.Integer),
        sa.Column("host", sa.Text),
        sa.Column("ca", sa.Text),
        sa.Column("source", sa.Text),
        sa.Column("has_data", sa.Boolean, nullable=False),
        sa.Column("is_wanted", sa.Boolean, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("applied", sa.BigInteger, nullable=False),
        sa.Column("check_at", Moment),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.CheckConstraint(
            "(type = 'managed') = (port IS NOT NULL)", name=op.f("ck_database_clusters_port")
        ),
        sa.CheckConstraint(
            "(type = 'registered') = (endpoint IS NOT NULL)",
            name=op.f("ck_database_clusters_endpoint"),
        ),
        sa.CheckConstraint(
            "status IN ('provisioning', 'active', 'updating', 'stopped', 'unavailable',"
            " 'deleting')",
            name=op.f("ck_database_clusters_status"),
        ),
        sa.CheckConstraint(
            "type IN ('managed', 'registered')", name=op.f("ck_database_clusters_type")
        ),
        sa.CheckConstraint("applied <= generation", name=op.f("ck_database_clusters_applied")),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_database_clusters_account_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_database_clusters")),
        sa.UniqueConstraint("id", "account_id", name=op.f("uq_database_clusters_id_account_id")),
    )
    op.create_index("ix_database_clusters_account_id_id", "database_clusters", ["account_id", "id"])
    op.create_index(
        "ix_database_clusters_check_at",
        "database_clusters",
        ["check_at", "id"],
        sqlite_where=sa.text("check_at IS NOT NULL"),
        postgresql_where=sa.text("check_at IS NOT NULL"),
    )
    op.create_index("ix_database_clusters_node_id", "database_clusters", ["node", "id"])
    op.create_index(
        "uq_database_clusters_name",
        "database_clusters",
        ["account_id", "region", "name"],
        unique=True,
    )
    op.create_index(
        "uq_database_clusters_node_port",
        "database_clusters",
        ["node", "port"],
        unique=True,
        sqlite_where=sa.text("port IS NOT NULL"),
        postgresql_where=sa.text("port IS NOT NULL"),
    )

    op.create_table(
        "backup_schedules",
        sa.Column("cluster_id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("due_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(
            ["cluster_id", "account_id"],
            ["database_clusters.id", "database_clusters.account_id"],
            name="fk_backup_schedules_cluster",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("cluster_id", name=op.f("pk_backup_schedules")),
    )
    op.create_index("ix_backup_schedules_due_at", "backup_schedules", ["due_at"])

    op.create_table(
        "database_backups",
        sa.Column("id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("faults", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("cluster_id", Id, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("trigger", sa.Text, nullable=False),
        sa.Column("progress", sa.Integer, nullable=False),
        sa.Column("size_bytes", sa.BigInteger),
        sa.Column("stored_bytes", sa.BigInteger),
        sa.Column("started_at", Moment),
        sa.Column("completed_at", Moment),
        sa.Column("verification", sa.Text, nullable=False),
        sa.Column("verified_at", Moment),
        sa.Column("base_id", Id),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.CheckConstraint(
            "kind = 'incremental' OR base_id IS NULL", name=op.f("ck_database_backups_base_id")
        ),
        sa.CheckConstraint(
            "kind IN ('base', 'incremental')", name=op.f("ck_database_backups_kind")
        ),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'succeeded', 'failed', 'deleting')",
            name=op.f("ck_database_backups_status"),
        ),
        sa.CheckConstraint(
            "trigger IN ('manual', 'schedule')", name=op.f("ck_database_backups_trigger")
        ),
        sa.CheckConstraint(
            "verification IN ('never', 'pending', 'running', 'succeeded', 'failed')",
            name=op.f("ck_database_backups_verification"),
        ),
        sa.CheckConstraint("progress BETWEEN 0 AND 100", name=op.f("ck_database_backups_progress")),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_database_backups_account_id")
        ),
        sa.ForeignKeyConstraint(
            ["base_id", "account_id"],
            ["database_backups.id", "database_backups.account_id"],
            name="fk_database_backups_base",
        ),
        sa.ForeignKeyConstraint(
            ["cluster_id", "account_id"],
            ["database_clusters.id", "database_clusters.account_id"],
            name="fk_database_backups_cluster",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_database_backups")),
        sa.UniqueConstraint("id", "account_id", name=op.f("uq_database_backups_id_account_id")),
    )
    op.create_index("ix_database_backups_account_id_id", "database_backups", ["account_id", "id"])
    op.create_index("ix_database_backups_base_id", "database_backups", ["base_id"])
    op.create_index("ix_database_backups_cluster_id_id", "database_backups", ["cluster_id", "id"])
    op.create_index(
        "ix_database_backups_verifying",
        "database_backups",
        ["node"],
        sqlite_where=sa.text("verification = 'running'"),
        postgresql_where=sa.text("verification = 'running'"),
    )

    op.create_table(
        "backup_turns",
        sa.Column("cluster_id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("backup_id", Id, nullable=False),
        sa.ForeignKeyConstraint(
            ["backup_id", "account_id"],
            ["database_backups.id", "database_backups.account_id"],
            name="fk_backup_turns_backup",
        ),
        sa.PrimaryKeyConstraint("cluster_id", name=op.f("pk_backup_turns")),
    )
    op.create_index("ix_backup_turns_backup_id", "backup_turns", ["backup_id"])


def downgrade() -> None:
    for table in ("backup_turns", "database_backups", "backup_schedules", "database_clusters"):
        op.drop_table(table)

"""Tables of the control plane."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


# A repository may hold most of a table. Left to its statistics, PostgreSQL takes any one for small,
# and reads all of it where the rest of a key would have found the few rows that are wanted.
_BY_REPOSITORY = (
    "deleted_manifests",
    "image_pins",
    "lifecycle_runs",
    "manifest_blobs",
    "manifest_children",
    "manifests",
    "repository_blobs",
    "tag_events",
    "tags",
    "uploads",
)


def upgrade() -> None:
    op.create_table(
        "event_rules",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column(
            "topic", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("event_types", sa.Text(), nullable=False),
        sa.Column(
            "repository_prefix",
            sa.Text().with_variant(sa.Text(collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_event_rules_account_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event_rules")),
    )
    with op.batch_alter_table("event_rules", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_event_rules_account_id_id"), ["account_id", "id"], unique=False
        )

    op.create_table(
        "registry_settings",
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column("undelete_days", sa.Integer(), nullable=False),
        sa.Column("uncounted_pullers", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "undelete_days BETWEEN 0 AND 90", name=op.f("ck_registry_settings_undelete_days")
        ),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_registry_settings_account_id")
        ),
        sa.PrimaryKeyConstraint("account_id", name=op.f("pk_registry_settings")),
    )
    op.create_table(
        "deleted_manifests",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("repository_id", sa.String(length=36), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column(
            "digest",
            sa.String(length=135).with_variant(sa.String(length=135, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("artifact_type", sa.Text(), nullable=True),
        sa.Column(
            "config_digest",
            sa.String(length=135).with_variant(sa.String(length=135, collation="C"), "postgresql"),
            nullable=True,
        ),
        sa.Column(
            "subject_digest",
            sa.String(length=135).with_variant(sa.String(length=135, collation="C"), "postgresql"),
            nullable=True,
        ),
        sa.Column("is_index", sa.Boolean(), nullable=False),
        sa.Column("manifest_size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("annotations", sa.Text(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("pushed_at", sa.BigInteger(), nullable=False),
        sa.Column("last_pulled_at", sa.BigInteger(), nullable=True),
        sa.Column("deleted_at", sa.BigInteger(), nullable=False),
        sa.Column("deleted_by", sa.Text(), nullable=False),
        sa.Column("restorable_until", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id", "digest"],
            ["manifest_bodies.account_id", "manifest_bodies.digest"],
            name=op.f("fk_deleted_manifests_account_id_digest"),
        ),
        sa.ForeignKeyConstraint(
            ["repository_id", "account_id"],
            ["repositories.id", "repositories.account_id"],
            name=op.f("fk_deleted_manifests_repository_id_account_id"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deleted_manifests")),
    )
    with op.batch_alter_table("deleted_manifests", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_deleted_manifests_account_id_digest"),
            ["account_id", "digest"],
            unique=False,
        )
        batch_op.create_index(
            "ix_deleted_manifests_deleted_at", ["repository_id", "deleted_at", "id"], unique=False
        )
        batch_op.create_index(
            "ix_deleted_manifests_restorable", ["repository_id", "restorable_until"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_deleted_manifests_restorable_until"), ["restorable_until"], unique=False
        )
        batch_op.create_index(
            "uq_deleted_manifests_digest", ["repository_id", "digest"], unique=True
        )

    op.create_table(
        "lifecycle_policies",
        sa.Column("repository_id", sa.String(length=36), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("next_run_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["repository_id"],
            ["repositories.id"],
            name=op.f("fk_lifecycle_policies_repository_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("repository_id", name=op.f("pk_lifecycle_policies")),
    )
    with op.batch_alter_table("lifecycle_policies", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_lifecycle_policies_next_run_at"), ["next_run_at"], unique=False
        )

    op.create_table(
        "lifecycle_runs",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("repository_id", sa.String(length=36), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("started_by", sa.Text(), nullable=False),
        sa.Column("evaluated", sa.BigInteger(), nullable=False),
        sa.Column("expired", sa.BigInteger(), nullable=False),
        sa.Column("freed_bytes", sa.BigInteger(), nullable=False),
        sa.Column("fault", sa.Text(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "(status = 'running') = (finished_at IS NULL)",
            name=op.f("ck_lifecycle_runs_finished_at"),
        ),
        sa.CheckConstraint(
            "status IN ('running', 'succeeded', 'failed')", name=op.f("ck_lifecycle_runs_status")
        ),
        sa.ForeignKeyConstraint(
            ["repository_id"],
            ["repositories.id"],
            name=op.f("fk_lifecycle_runs_repository_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lifecycle_runs")),
    )
    with op.batch_alter_table("lifecycle_runs", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_lifecycle_runs_repository_id_id"), ["repository_id", "id"], unique=False
        )
        batch_op.create_index(
            "uq_lifecycle_runs_running",
            ["repository_id"],
            unique=True,
            sqlite_where=sa.text("status = 'running'"),
            postgresql_where=sa.text("status = 'running'"),
        )

    op.create_table(
        "tag_events",
        sa.Column("sequence", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("repository_id", sa.String(length=36), nullable=False),
        sa.Column(
            "tag", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("action", sa.String(length=16), nullable=False),
        sa.Column(
            "digest",
            sa.String(length=135).with_variant(sa.String(length=135, collation="C"), "postgresql"),
            nullable=True,
        ),
        sa.Column(
            "previous_digest",
            sa.String(length=135).with_variant(sa.String(length=135, collation="C"), "postgresql"),
            nullable=True,
        ),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("occurred_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "(digest IS NULL) = (action = 'deleted')", name=op.f("ck_tag_events_digest")
        ),
        sa.CheckConstraint(
            "action IN ('created', 'moved', 'deleted', 'restored')",
            name=op.f("ck_tag_events_action"),
        ),
        sa.ForeignKeyConstraint(
            ["repository_id"],
            ["repositories.id"],
            name=op.f("fk_tag_events_repository_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_tag_events")),
    )
    with op.batch_alter_table("tag_events", schema=None) as batch_op:
        batch_op.create_index(
            "ix_tag_events_deleted",
            ["repository_id", "sequence"],
            unique=False,
            sqlite_where=sa.text("action = 'deleted'"),
            postgresql_where=sa.text("action = 'deleted'"),
        )
        batch_op.create_index(
            batch_op.f("ix_tag_events_occurred_at"), ["occurred_at"], unique=False
        )
        batch_op.create_index(
            "ix_tag_events_previous_digest",
            ["repository_id", "previous_digest", "occurred_at"],
            unique=False,
            sqlite_where=sa.text("previous_digest IS NOT NULL"),
            postgresql_where=sa.text("previous_digest IS NOT NULL"),
        )
        batch_op.create_index(
            batch_op.f("ix_tag_events_repository_id_tag_sequence"),
            ["repository_id", "tag", "sequence"],
            unique=False,
        )

    op.create_table(
        "deleted_manifest_blobs",
        sa.Column("manifest_id", sa.String(length=36), nullable=False),
        sa.Column(
            "digest",
            sa.String(length=135).with_variant(sa.String(length=135, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column("object_id", sa.String(length=36), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["manifest_id"],
            ["deleted_manifests.id"],
            name=op.f("fk_deleted_manifest_blobs_manifest_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["object_id", "account_id", "digest", "size"],
            [
                "blob_objects.id",
                "blob_objects.account_id",
                "blob_objects.digest",
                "blob_objects.size",
            ],
            name=op.f("fk_deleted_manifest_blobs_object_id_account_id_digest_size"),
        ),
        sa.PrimaryKeyConstraint("manifest_id", "digest", name=op.f("pk_deleted_manifest_blobs")),
    )
    with op.batch_alter_table("deleted_manifest_blobs", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_deleted_manifest_blobs_object_id"), ["object_id"], unique=False
        )

    op.create_table(
        "deleted_manifest_children",
        sa.Column("manifest_id", sa.String(length=36), nullable=False),
        sa.Column(
            "child_digest",
            sa.String(length=135).with_variant(sa.String(length=135, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["manifest_id"],
            ["deleted_manifests.id"],
            name=op.f("fk_deleted_manifest_children_manifest_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "manifest_id", "child_digest", name=op.f("pk_deleted_manifest_children")
        ),
    )
    op.create_table(
        "image_pins",
        sa.Column("manifest_id", sa.String(length=36), nullable=False),
        sa.Column(
            "name", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("repository_id", sa.String(length=36), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["manifest_id", "repository_id"],
            ["manifests.id", "manifests.repository_id"],
            name=op.f("fk_image_pins_manifest_id_repository_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("manifest_id", "name", name=op.f("pk_image_pins")),
    )
    with op.batch_alter_table("image_pins", schema=None) as batch_op:
        batch_op.create_index(
            "ix_image_pins_expires_at",
            ["expires_at"],
            unique=False,
            sqlite_where=sa.text("expires_at IS NOT NULL"),
            postgresql_where=sa.text("expires_at IS NOT NULL"),
        )
        batch_op.create_index(
            batch_op.f("ix_image_pins_repository_id_manifest_id"),
            ["repository_id", "manifest_id"],
            unique=False,
        )

    with op.batch_alter_table("manifest_blobs", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_manifest_blobs_repository_id_digest"))
        batch_op.create_index(
            batch_op.f("ix_manifest_blobs_digest_repository_id"),
            ["digest", "repository_id"],
            unique=False,
        )

    with op.batch_alter_table("manifests", schema=None) as batch_op:
        batch_op.create_index(
            "ix_manifests_last_pulled_at",
            ["repository_id", "last_pulled_at"],
            unique=False,
            sqlite_where=sa.text("last_pulled_at IS NOT NULL"),
            postgresql_where=sa.text("last_pulled_at IS NOT NULL"),
        )
        batch_op.create_index(
            "ix_manifests_tagged",
            ["repository_id", "id"],
            unique=False,
            sqlite_where=sa.text("tag_count > 0"),
            postgresql_where=sa.text("tag_count > 0"),
        )

    with op.batch_alter_table("repositories", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column(
                "tagged_image_count", sa.BigInteger(), server_default=sa.text("0"), nullable=False
            )
        )
        batch_op.add_column(sa.Column("deleted_by", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("restorable_until", sa.BigInteger(), nullable=True))
        batch_op.create_check_constraint(
            op.f("ck_repositories_tagged_image_count"), "tagged_image_count >= 0"
        )
        batch_op.create_index(
            "ix_repositories_deleted",
            ["account_id", "id"],
            unique=False,
            sqlite_where=sa.text("deleted_at IS NOT NULL"),
            postgresql_where=sa.text("deleted_at IS NOT NULL"),
        )
        batch_op.create_index(
            "ix_repositories_restorable_until",
            ["restorable_until"],
            unique=False,
            sqlite_where=sa.text("restorable_until IS NOT NULL"),
            postgresql_where=sa.text("restorable_until IS NOT NULL"),
        )
    op.execute(
        "UPDATE repositories SET restorable_until = deleted_at, tagged_image_count ="
        " (SELECT count(*) FROM manifests"
        " WHERE manifests.repository_id = repositories.id AND manifests.tag_count > 0)"
    )
    if op.get_bind().dialect.name == "postgresql":
        for table in _BY_REPOSITORY:
            op.execute(f"ALTER TABLE {table} ALTER COLUMN repository_id SET (n_distinct = 2)")


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        for table in _BY_REPOSITORY:
            op.execute(f"ALTER TABLE {table} ALTER COLUMN repository_id RESET (n_distinct)")
    with op.batch_alter_table("repositories", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_repositories_restorable_until",
            sqlite_where=sa.text("restorable_until IS NOT NULL"),
            postgresql_where=sa.text("restorable_until IS NOT NULL"),
        )
        batch_op.drop_index(
            "ix_repositories_deleted",
            sqlite_where=sa.text("deleted_at IS NOT NULL"),
            postgresql_where=sa.text("deleted_at IS NOT NULL"),
        )
        batch_op.drop_constraint(op.f("ck_repositories_tagged_image_count"), type_="check")
        batch_op.drop_column("restorable_until")
        batch_op.drop_column("deleted_by")
        batch_op.drop_column("tagged_image_count")

    with op.batch_alter_table("manifests", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_manifests_tagged",
            sqlite_where=sa.text("tag_count > 0"),
            postgresql_where=sa.text("tag_count > 0"),
        )
        batch_op.drop_index(
            "ix_manifests_last_pulled_at",
            sqlite_where=sa.text("last_pulled_at IS NOT NULL"),
            postgresql_where=sa.text("last_pulled_at IS NOT NULL"),
        )

    with op.batch_alter_table("manifest_blobs", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_manifest_blobs_digest_repository_id"))
        batch_op.create_index(
            batch_op.f("ix_manifest_blobs_repository_id_digest"),
            ["repository_id", "digest"],
            unique=False,
        )

    with op.batch_alter_table("image_pins", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_image_pins_repository_id_manifest_id"))
        batch_op.drop_index(
            "ix_image_pins_expires_at",
            sqlite_where=sa.text("expires_at IS NOT NULL"),
            postgresql_where=sa.text("expires_at IS NOT NULL"),
        )

    op.drop_table("image_pins")
    op.drop_table("deleted_manifest_children")
    with op.batch_alter_table("deleted_manifest_blobs", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_deleted_manifest_blobs_object_id"))

    op.drop_table("deleted_manifest_blobs")
    with op.batch_alter_table("tag_events", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_tag_events_repository_id_tag_sequence"))
        batch_op.drop_index(
            "ix_tag_events_previous_digest",
            sqlite_where=sa.text("previous_digest IS NOT NULL"),
            postgresql_where=sa.text("previous_digest IS NOT NULL"),
        )
        batch_op.drop_index(batch_op.f("ix_tag_events_occurred_at"))
        batch_op.drop_index(
            "ix_tag_events_deleted",
            sqlite_where=sa.text("action = 'deleted'"),
            postgresql_where=sa.text("action = 'deleted'"),
        )

    op.drop_table("tag_events")
    with op.batch_alter_table("lifecycle_runs", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_lifecycle_runs_running",
            sqlite_where=sa.text("status = 'running'"),
            postgresql_where=sa.text("status = 'running'"),
        )
        batch_op.drop_index(batch_op.f("ix_lifecycle_runs_repository_id_id"))

    op.drop_table("lifecycle_runs")
    with op.batch_alter_table("lifecycle_policies", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_lifecycle_policies_next_run_at"))

    op.drop_table("lifecycle_policies")
    with op.batch_alter_table("deleted_manifests", schema=None) as batch_op:
        batch_op.drop_index("uq_deleted_manifests_digest")
        batch_op.drop_index(batch_op.f("ix_deleted_manifests_restorable_until"))
        batch_op.drop_index("ix_deleted_manifests_restorable")
        batch_op.drop_index("ix_deleted_manifests_deleted_at")
        batch_op.drop_index(batch_op.f("ix_deleted_manifests_account_id_digest"))

    op.drop_table("deleted_manifests")
    op.drop_table("registry_settings")
    with op.batch_alter_table("event_rules", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_event_rules_account_id_id"))

    op.drop_table("event_rules")

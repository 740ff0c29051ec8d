"""Tables of the collector."""

from __future__ import annotations

import time
from collections import Counter

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_DAY = 24 * 3600 * 10**6


def upgrade() -> None:
    op.create_table(
        "gc_runs",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("started_by", sa.Text(), nullable=False),
        sa.Column("unlinked", sa.BigInteger(), nullable=False),
        sa.Column("condemned", sa.BigInteger(), nullable=False),
        sa.Column("swept", sa.BigInteger(), nullable=False),
        sa.Column("removed", sa.BigInteger(), nullable=False),
        sa.Column("freed_bytes", sa.BigInteger(), nullable=False),
        sa.Column("kept", sa.BigInteger(), nullable=False),
        sa.Column("fault", sa.Text(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "(status = 'running') = (finished_at IS NULL)", name=op.f("ck_gc_runs_finished_at")
        ),
        sa.CheckConstraint(
            "status IN ('running', 'succeeded', 'failed')", name=op.f("ck_gc_runs_status")
        ),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_gc_runs_account_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gc_runs")),
    )
    with op.batch_alter_table("gc_runs", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_gc_runs_account_id_id"), ["account_id", "id"], unique=False
        )
        batch_op.create_index(
            "uq_gc_runs_running",
            ["account_id"],
            unique=True,
            sqlite_where=sa.text("status = 'running'"),
            postgresql_where=sa.text("status = 'running'"),
        )

    op.create_table(
        "quarantined_objects",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column(
            "digest",
            sa.String(length=135).with_variant(sa.String(length=135, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("stored_size", sa.BigInteger(), nullable=False),
        sa.Column("layout", sa.String(length=16), nullable=False),
        sa.Column("swept_at", sa.BigInteger(), nullable=False),
        sa.Column("removal_began_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_quarantined_objects_account_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_quarantined_objects")),
    )
    with op.batch_alter_table("quarantined_objects", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_quarantined_objects_account_id_digest"),
            ["account_id", "digest"],
            unique=False,
        )
        batch_op.create_index(
            batch_op.f("ix_quarantined_objects_account_id_swept_at"),
            ["account_id", "swept_at"],
            unique=False,
        )

    with op.batch_alter_table("blob_objects", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_blob_objects_state_condemned_at"))
        batch_op.create_index(
            "ix_blob_objects_condemned",
            ["account_id", "condemned_at"],
            unique=False,
            sqlite_where=sa.text("state = 'condemned'"),
            postgresql_where=sa.text("state = 'condemned'"),
        )

    with op.batch_alter_table("repository_blobs", schema=None) as batch_op:
        batch_op.drop_index(
            batch_op.f("ix_repository_blobs_unreferenced"),
            sqlite_where=sa.text("manifest_refs = 0"),
        )
        batch_op.create_index(
            "ix_repository_blobs_unreferenced",
            ["account_id", "touched_at"],
            unique=False,
            sqlite_where=sa.text("manifest_refs = 0"),
            postgresql_where=sa.text("manifest_refs = 0"),
        )

    with op.batch_alter_table("manifests", schema=None) as batch_op:
        batch_op.add_column(sa.Column("restored_at", sa.BigInteger(), nullable=True))

    with op.batch_alter_table("refresh_tokens", schema=None) as batch_op:
        batch_op.add_column(sa.Column("client_id", sa.String(length=64), nullable=True))

    with op.batch_alter_table("outbox", schema=None) as batch_op:
        batch_op.create_index(
            "ix_outbox_undelivered",
            ["created_at"],
            unique=False,
            sqlite_where=sa.text("delivered_at IS NULL"),
            postgresql_where=sa.text("delivered_at IS NULL"),
        )

    op.create_table(
        "deleted_tags",
        sa.Column("repository_id", sa.String(length=36), nullable=False),
        sa.Column(
            "name", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column(
            "digest",
            sa.String(length=135).with_variant(sa.String(length=135, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column("has_image", sa.Boolean(), nullable=False),
        sa.Column("deleted_at", sa.BigInteger(), nullable=False),
        sa.Column("deleted_by", sa.Text(), nullable=False),
        sa.Column("restorable_until", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["repository_id"],
            ["repositories.id"],
            name=op.f("fk_deleted_tags_repository_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("repository_id", "name", name=op.f("pk_deleted_tags")),
    )
    with op.batch_alter_table("deleted_tags", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_deleted_tags_repository_id_digest"),
            ["repository_id", "digest"],
            unique=False,
        )
        batch_op.create_index(
            batch_op.f("ix_deleted_tags_restorable_until"), ["restorable_until"], unique=False
        )
        batch_op.create_index(
            "ix_deleted_tags_restorable",
            ["repository_id", "restorable_until"],
            unique=False,
            sqlite_where=sa.text("has_image"),
            postgresql_where=sa.text("has_image"),
        )
        batch_op.create_index(
            "ix_deleted_tags_sequence",
            ["repository_id", "sequence"],
            unique=False,
            sqlite_where=sa.text("has_image"),
            postgresql_where=sa.text("has_image"),
        )

    op.create_table(
        "repository_folders",
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column(
            "folder", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("repository_count", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "repository_count >= 0", name=op.f("ck_repository_folders_repository_count")
        ),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_repository_folders_account_id")
        ),
        sa.PrimaryKeyConstraint("account_id", "folder", name=op.f("pk_repository_folders")),
    )

    with op.batch_alter_table("repositories", schema=None) as batch_op:
        for name in ("deleted_image_count", "deleted_tag_count"):
            batch_op.add_column(
                sa.Column(name, sa.BigInteger(), server_default=sa.text("0"), nullable=False)
            )
            batch_op.create_check_constraint(op.f(f"ck_repositories_{name}"), f"{name} >= 0")

    _find_deleted_tags()
    _count_folders()
    with op.batch_alter_table("tag_events", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_tag_events_deleted",
            sqlite_where=sa.text("action = 'deleted'"),
            postgresql_where=sa.text("action = 'deleted'"),
        )
        batch_op.add_column(sa.Column("manifest_id", sa.String(length=36), nullable=True))
        batch_op.add_column(sa.Column("previous_manifest_id", sa.String(length=36), nullable=True))
        batch_op.create_index(
            batch_op.f("ix_tag_events_repository_id_sequence"),
            ["repository_id", "sequence"],
            unique=False,
        )
    if op.get_bind().dialect.name == "postgresql":  # as 0002 explains
        op.execute("ALTER TABLE deleted_tags ALTER COLUMN repository_id SET (n_distinct = 2)")

    # Until now nothing was condemned: what nobody refers to waits for the collector from here on.
    op.execute(
        "UPDATE blob_objects SET state = 'condemned', condemned_at = created_at"
        " WHERE NOT EXISTS (SELECT 1 FROM repository_blobs"
        " WHERE repository_blobs.object_id = blob_objects.id)"
        " AND NOT EXISTS (SELECT 1 FROM deleted_manifest_blobs"
        " WHERE deleted_manifest_blobs.object_id = blob_objects.id)"
    )


def _find_deleted_tags() -> None:
    """Fill `deleted_tags` from the history, and count what can be restored."""
    op.get_bind().execute(
        sa.text(
            "INSERT INTO deleted_tags (repository_id, name, sequence, digest, has_image,"
            " deleted_at, deleted_by, restorable_until)"
            " SELECT last.repository_id, last.tag, last.sequence, last.previous_digest,"
            " m.id IS NOT NULL, last.occurred_at, last.principal,"
            " CASE WHEN m.id IS NULL AND d.restorable_until < last.until"
            " THEN d.restorable_until ELSE last.until END"
            " FROM (SELECT e.*, e.occurred_at + coalesce(s.undelete_days, 7) * :day AS until"
            " FROM tag_events e JOIN repositories r ON r.id = e.repository_id"
            " LEFT JOIN registry_settings s ON s.account_id = r.account_id"
            " WHERE e.action = 'deleted') last"
            " LEFT JOIN manifests m"
            " ON m.repository_id = last.repository_id AND m.digest = last.previous_digest"
            " LEFT JOIN deleted_manifests d"
            " ON d.repository_id = last.repository_id AND d.digest = last.previous_digest"
            " WHERE last.until > :now AND (m.id IS NOT NULL OR d.id IS NOT NULL)"
            " AND NOT EXISTS (SELECT 1 FROM tags t"
            " WHERE t.repository_id = last.repository_id AND t.name = last.tag)"
            " AND NOT EXISTS (SELECT 1 FROM tag_events later"
            " WHERE later.repository_id = last.repository_id AND later.tag = last.tag"
            " AND later.sequence > last.sequence)"
        ).bindparams(
            sa.bindparam("day", _DAY, type_=sa.BigInteger()),
            sa.bindparam("now", time.time_ns() // 1000, type_=sa.BigInteger()),
        )
    )
    op.execute(
        "UPDATE repositories SET"
        " deleted_image_count = (SELECT count(*) FROM deleted_manifests d"
        " WHERE d.repository_id = repositories.id),"
        " deleted_tag_count = (SELECT count(*) FROM deleted_tags t"
        " WHERE t.repository_id = repositories.id AND t.has_image)"
    )


def _count_folders() -> None:
    live = op.get_bind().execute(
        sa.text("SELECT account_id, name FROM repositories WHERE deleted_at IS NULL")
    )
    counts = Counter(
        (account_id, name[:end])
        for account_id, name in live
        for end in (0, *(place + 1 for place, letter in enumerate(name) if letter == "/"))
    )
    folders = sa.table(
        "repository_folders",
        sa.column("account_id", sa.String()),
        sa.column("folder", sa.Text()),
        sa.column("repository_count", sa.BigInteger()),
    )
    op.bulk_insert(
        folders,
        [
            {"account_id": account_id, "folder": folder, "repository_count": count}
            for (account_id, folder), count in counts.items()
        ],
    )


def downgrade() -> None:
    with op.batch_alter_table("tag_events", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_tag_events_repository_id_sequence"))
        batch_op.drop_column("previous_manifest_id")
        batch_op.drop_column("manifest_id")
        batch_op.create_index(
            "ix_tag_events_deleted",
            ["repository_id", "sequence"],
            unique=False,
            sqlite_where=sa.text("action = 'deleted'"),
            postgresql_where=sa.text("action = 'deleted'"),
        )

    with op.batch_alter_table("repositories", schema=None) as batch_op:
        for name in ("deleted_tag_count", "deleted_image_count"):
            batch_op.drop_constraint(op.f(f"ck_repositories_{name}"), type_="check")
            batch_op.drop_column(name)

    op.drop_table("repository_folders")
    with op.batch_alter_table("deleted_tags", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_deleted_tags_sequence",
            sqlite_where=sa.text("has_image"),
            postgresql_where=sa.text("has_image"),
        )
        batch_op.drop_index(
            "ix_deleted_tags_restorable",
            sqlite_where=sa.text("has_image"),
            postgresql_where=sa.text("has_image"),
        )
        batch_op.drop_index(batch_op.f("ix_deleted_tags_restorable_until"))
        batch_op.drop_index(batch_op.f("ix_deleted_tags_repository_id_digest"))

    op.drop_table("deleted_tags")

    with op.batch_alter_table("outbox", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_outbox_undelivered",
            sqlite_where=sa.text("delivered_at IS NULL"),
            postgresql_where=sa.text("delivered_at IS NULL"),
        )

    with op.batch_alter_table("refresh_tokens", schema=None) as batch_op:
        batch_op.drop_column("client_id")

    with op.batch_alter_table("manifests", schema=None) as batch_op:
        batch_op.drop_column("restored_at")

    with op.batch_alter_table("repository_blobs", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_repository_blobs_unreferenced",
            sqlite_where=sa.text("manifest_refs = 0"),
            postgresql_where=sa.text("manifest_refs = 0"),
        )
        batch_op.create_index(
            batch_op.f("ix_repository_blobs_unreferenced"),
            ["touched_at"],
            unique=False,
            sqlite_where=sa.text("manifest_refs = 0"),
        )

    with op.batch_alter_table("blob_objects", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_blob_objects_condemned",
            sqlite_where=sa.text("state = 'condemned'"),
            postgresql_where=sa.text("state = 'condemned'"),
        )
        batch_op.create_index(
            batch_op.f("ix_blob_objects_state_condemned_at"),
            ["state", "condemned_at"],
            unique=False,
        )

    with op.batch_alter_table("quarantined_objects", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_quarantined_objects_account_id_swept_at"))
        batch_op.drop_index(batch_op.f("ix_quarantined_objects_account_id_digest"))

    op.drop_table("quarantined_objects")
    with op.batch_alter_table("gc_runs", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_gc_runs_running",
            sqlite_where=sa.text("status = 'running'"),
            postgresql_where=sa.text("status = 'running'"),
        )
        batch_op.drop_index(batch_op.f("ix_gc_runs_account_id_id"))

    op.drop_table("gc_runs")

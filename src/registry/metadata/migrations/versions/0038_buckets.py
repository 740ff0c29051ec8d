"""Add buckets, their objects and multipart uploads, and the pieces that hold their bytes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import ByteOrdered, Id, Moment

revision = "0038"
down_revision = "0037"

_OF_OBJECT = sa.text("object_id IS NOT NULL")
_OF_UPLOAD = sa.text("upload_id IS NOT NULL")
_IS_CONDEMNED = sa.text("condemned_at IS NOT NULL")
_IS_ENDED = sa.text("ended_at IS NOT NULL")
_IS_OPEN = sa.text("ended_at IS NULL")


def upgrade() -> None:
    op.create_table(
        "storage_buckets",
        sa.Column("id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("kms_key_id", Id),
        sa.Column("cors", sa.Text),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_storage_buckets_account_id")
        ),
        sa.ForeignKeyConstraint(
            ["kms_key_id", "account_id"],
            ["kms_keys.id", "kms_keys.account_id"],
            name="fk_storage_buckets_kms_key",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_storage_buckets")),
        sa.UniqueConstraint("id", "account_id", name=op.f("uq_storage_buckets_id_account_id")),
        sa.UniqueConstraint("region", "name", name=op.f("uq_storage_buckets_region_name")),
    )
    op.create_index(
        "ix_storage_buckets_account_id_region_name",
        "storage_buckets",
        ["account_id", "region", "name"],
    )
    op.create_index("ix_storage_buckets_kms_key_id", "storage_buckets", ["kms_key_id"])
    op.create_table(
        "storage_counts",
        sa.Column("bucket_id", Id, nullable=False),
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("objects", sa.BigInteger, nullable=False),
        sa.Column("object_bytes", sa.BigInteger, nullable=False),
        sa.Column("upload_bytes", sa.BigInteger, nullable=False),
        sa.ForeignKeyConstraint(
            ["bucket_id", "account_id"],
            ["storage_buckets.id", "storage_buckets.account_id"],
            name="fk_storage_counts_bucket",
        ),
        sa.PrimaryKeyConstraint("bucket_id", "shard", name=op.f("pk_storage_counts")),
    )
    op.create_index(
        "ix_storage_counts_account_id_bucket_id", "storage_counts", ["account_id", "bucket_id"]
    )
    op.create_table(
        "storage_objects",
        sa.Column("id", Id, nullable=False),
        sa.Column("bucket_id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("key", sa.LargeBinary, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("etag", sa.String(40), nullable=False),
        sa.Column("content_type", sa.Text, nullable=False),
        sa.Column("headers", sa.Text, nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("storage_class", sa.String(16), nullable=False),
        sa.Column("checksum", sa.Text),
        sa.Column("created_at", Moment, nullable=False),
        sa.CheckConstraint("size >= 0", name=op.f("ck_storage_objects_size")),
        sa.ForeignKeyConstraint(
            ["bucket_id", "account_id"],
            ["storage_buckets.id", "storage_buckets.account_id"],
            name="fk_storage_objects_bucket",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_storage_objects")),
        sa.UniqueConstraint("bucket_id", "key", name=op.f("uq_storage_objects_bucket_id_key")),
        sa.UniqueConstraint("id", "account_id", name=op.f("uq_storage_objects_id_account_id")),
    )
    _create_uploads()


def _create_uploads() -> None:
    op.create_table(
        "storage_uploads",
        sa.Column("id", Id, nullable=False),
        sa.Column("bucket_id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("key", sa.LargeBinary, nullable=False),
        sa.Column("content_type", sa.Text, nullable=False),
        sa.Column("headers", sa.Text, nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("storage_class", sa.String(16), nullable=False),
        sa.Column("checksum_algorithm", sa.String(16)),
        sa.Column("checksum_type", sa.String(16)),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("ended_at", Moment),
        sa.Column("completion", sa.Text),
        sa.CheckConstraint(
            "(ended_at IS NULL) = (completion IS NULL)", name=op.f("ck_storage_uploads_completion")
        ),
        sa.ForeignKeyConstraint(
            ["bucket_id", "account_id"],
            ["storage_buckets.id", "storage_buckets.account_id"],
            name="fk_storage_uploads_bucket",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_storage_uploads")),
        sa.UniqueConstraint("id", "account_id", name=op.f("uq_storage_uploads_id_account_id")),
    )
    op.create_index("ix_storage_uploads_bucket_id", "storage_uploads", ["bucket_id"])
    op.create_index("ix_storage_uploads_created_at", "storage_uploads", ["created_at"])
    op.create_index(
        "ix_storage_uploads_ended_at",
        "storage_uploads",
        ["ended_at"],
        sqlite_where=_IS_ENDED,
        postgresql_where=_IS_ENDED,
    )
    op.create_index(
        "ix_storage_uploads_open",
        "storage_uploads",
        ["bucket_id", "key", "id"],
        sqlite_where=_IS_OPEN,
        postgresql_where=_IS_OPEN,
    )
    op.create_table(
        "storage_pieces",
        sa.Column("id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("object_id", Id),
        sa.Column("upload_id", Id),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("stored_size", sa.BigInteger, nullable=False),
        sa.Column("md5", sa.String(32), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("checksum", sa.Text),
        sa.Column("encoding", sa.String(16), nullable=False),
        sa.Column("stored_checksum", sa.String(64)),
        sa.Column("body", sa.LargeBinary),
        sa.Column("kms_key_id", Id),
        sa.Column("wrapped", sa.LargeBinary),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("condemned_at", Moment),
        sa.CheckConstraint(
            "(kms_key_id IS NULL) = (wrapped IS NULL)", name=op.f("ck_storage_pieces_wrapped")
        ),
        sa.CheckConstraint(
            "(object_id IS NOT NULL AND upload_id IS NULL AND condemned_at IS NULL)"
            " OR (object_id IS NULL AND upload_id IS NOT NULL AND condemned_at IS NULL)"
            " OR (object_id IS NULL AND upload_id IS NULL AND condemned_at IS NOT NULL)",
            name=op.f("ck_storage_pieces_owner"),
        ),
        sa.CheckConstraint("number BETWEEN 1 AND 10000", name=op.f("ck_storage_pieces_number")),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_storage_pieces_account_id")
        ),
        sa.ForeignKeyConstraint(
            ["object_id", "account_id"],
            ["storage_objects.id", "storage_objects.account_id"],
            name="fk_storage_pieces_object",
        ),
        sa.ForeignKeyConstraint(
            ["upload_id", "account_id"],
            ["storage_uploads.id", "storage_uploads.account_id"],
            name="fk_storage_pieces_upload",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_storage_pieces")),
    )
    op.create_index(
        "ix_storage_pieces_condemned",
        "storage_pieces",
        ["condemned_at"],
        sqlite_where=_IS_CONDEMNED,
        postgresql_where=_IS_CONDEMNED,
    )
    op.create_index(
        "uq_storage_pieces_object",
        "storage_pieces",
        ["object_id", "number"],
        unique=True,
        sqlite_where=_OF_OBJECT,
        postgresql_where=_OF_OBJECT,
    )
    op.create_index(
        "uq_storage_pieces_upload",
        "storage_pieces",
        ["upload_id", "number"],
        unique=True,
        sqlite_where=_OF_UPLOAD,
        postgresql_where=_OF_UPLOAD,
    )


def downgrade() -> None:
    for name in ("pieces", "uploads", "objects", "counts", "buckets"):
        op.drop_table(f"storage_{name}")

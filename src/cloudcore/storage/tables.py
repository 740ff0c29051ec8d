"""The tables of buckets, objects, multipart uploads and the pieces in which bytes are stored."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from cloudcore.db.schema import Id, Moment, metadata, partial_index
from cloudcore.resources.rows import Rows
from cloudcore.storage.bucket import BUCKET
from cloudcore.storage.errors import NoSuchBucket

OF_OBJECT: Final = text("object_id IS NOT NULL")
OF_UPLOAD: Final = text("upload_id IS NOT NULL")
IS_CONDEMNED: Final = text("condemned_at IS NOT NULL")
IS_ENDED: Final = text("ended_at IS NOT NULL")
IS_OPEN: Final = text("ended_at IS NULL")
IS_DUE: Final = text("damage IS NULL AND condemned_at IS NULL AND encoding <> 'shredded'")
IS_DAMAGED: Final = text("damage IS NOT NULL")
StorageClassName: Final = String(32)
IS_KEYED: Final = text("kms_key_id IS NOT NULL")


def _reference(name: str, column: str, table: str) -> ForeignKeyConstraint:
    """Return the reference to a row of the same account."""
    target = [f"{table}.id", f"{table}.account_id"]
    return ForeignKeyConstraint([column, "account_id"], target, name=name)


BUCKET_ROWS: Final = Rows(
    BUCKET,
    _reference("fk_storage_buckets_kms_key", "kms_key_id", "kms_keys"),
    Index("ix_storage_buckets_account_id_region_name", "account_id", "region", "name"),
    Index("ix_storage_buckets_kms_key_id", "kms_key_id"),
    unique=UniqueConstraint("region", "name"),
    types={"kms_key_id": Id},
    missing=NoSuchBucket,
)
storage_buckets: Final = BUCKET_ROWS.table

# What else needs a bucket, which is not deleted meanwhile, also if nothing is in it yet.
bucket_uses = Table(
    "bucket_uses",
    metadata,
    Column("bucket_id", Id, primary_key=True),
    Column("user_id", Id, primary_key=True),
    Column("account_id", Id, nullable=False),
    Column("words", Text, nullable=False),
    _reference("fk_bucket_uses_bucket", "bucket_id", "storage_buckets"),
    Index("ix_bucket_uses_account_id_bucket_id", "account_id", "bucket_id"),
)

# What a bucket holds is the sum of its shards. Several, so that writers do not wait for one row.
storage_counts = Table(
    "storage_counts",
    metadata,
    Column("bucket_id", Id, primary_key=True),
    Column("shard", Integer, primary_key=True),
    Column("account_id", Id, nullable=False),
    Column("objects", BigInteger, nullable=False),
    Column("object_bytes", BigInteger, nullable=False),
    Column("upload_bytes", BigInteger, nullable=False),
    _reference("fk_storage_counts_bucket", "bucket_id", "storage_buckets"),
    Index("ix_storage_counts_account_id_bucket_id", "account_id", "bucket_id"),
)

# The bytes of an account's pieces, also of condemned ones: the sum of its shards.
storage_account_bytes = Table(
    "storage_account_bytes",
    metadata,
    Column("account_id", Id, ForeignKey("accounts.id"), primary_key=True),
    Column("shard", Integer, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
)

# Keys are the bytes of their UTF-8, which both databases order alike.
storage_objects = Table(
    "storage_objects",
    metadata,
    Column("id", Id, primary_key=True),
    Column("bucket_id", Id, nullable=False),
    Column("account_id", Id, nullable=False),
    Column("key", LargeBinary, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("etag", String(40), nullable=False),
    Column("content_type", Text, nullable=False),
    Column("headers", Text, nullable=False),  # a JSON object
    Column("metadata", Text, nullable=False),  # a JSON object
    Column("tags", Text, nullable=False),  # a JSON object
    Column("storage_class", StorageClassName, nullable=False),
    Column("checksum", Text),  # a JSON array: algorithm, value, type
    Column("created_at", Moment, nullable=False),
    UniqueConstraint("id", "account_id"),
    UniqueConstraint("bucket_id", "key"),
    CheckConstraint("size >= 0", name="size"),
    _reference("fk_storage_objects_bucket", "bucket_id", "storage_buckets"),
)

# A completed upload stays for a while, to answer a completion that is repeated.
storage_uploads = Table(
    "storage_uploads",
    metadata,
    Column("id", Id, primary_key=True),
    Column("bucket_id", Id, nullable=False),
    Column("account_id", Id, nullable=False),
    Column("key", LargeBinary, nullable=False),
    Column("content_type", Text, nullable=False),
    Column("headers", Text, nullable=False),
    Column("metadata", Text, nullable=False),
    Column("tags", Text, nullable=False),
    Column("storage_class", StorageClassName, nullable=False),
    Column("checksum_algorithm", String(16)),
    Column("checksum_type", String(16)),
    Column("created_at", Moment, nullable=False),
    Column("ended_at", Moment),  # completed
    Column("completion", Text),  # a JSON object: what was asked, and the object that it made
    UniqueConstraint("id", "account_id"),
    CheckConstraint("(ended_at IS NULL) = (completion IS NULL)", name="completion"),
    _reference("fk_storage_uploads_bucket", "bucket_id", "storage_buckets"),
    partial_index("ix_storage_uploads_open", "bucket_id", "key", "id", where=IS_OPEN),
    Index("ix_storage_uploads_bucket_id", "bucket_id"),
    Index("ix_storage_uploads_created_at", "created_at"),
    partial_index("ix_storage_uploads_ended_at", "ended_at", where=IS_ENDED),
)

# A piece belongs to one object, or is a part of one upload, or is condemned: nobody's, and gone
# soon. The id is that of the stored bytes. Those of a shredded one are gone: its key was deleted.
storage_pieces = Table(
    "storage_pieces",
    metadata,
    Column("id", Id, primary_key=True),
    Column("account_id", Id, ForeignKey("accounts.id"), nullable=False),
    Column("object_id", Id),
    Column("upload_id", Id),
    Column("number", Integer, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("stored_size", BigInteger, nullable=False),
    Column("md5", String(32), nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("checksum", Text),  # of a part, by the algorithm of its upload
    Column("encoding", String(16), nullable=False),
    Column("stored_checksum", String(64)),  # BLAKE3 of the stored bytes, if they are sealed
    Column("body", LargeBinary),  # the stored bytes of a small one
    Column("kms_key_id", Id),
    Column("wrapped", LargeBinary),  # the data key
    Column("created_at", Moment, nullable=False),
    Column("condemned_at", Moment),
    Column("damage", String(16)),  # found by the scrub or fsck
    Column("damaged_at", Moment),
    Column("verified_at", Moment, nullable=False, server_default=text("0")),
    CheckConstraint(
        "(object_id IS NOT NULL AND upload_id IS NULL AND condemned_at IS NULL)"
        " OR (object_id IS NULL AND upload_id IS NOT NULL AND condemned_at IS NULL)"
        " OR (object_id IS NULL AND upload_id IS NULL AND condemned_at IS NOT NULL)",
        name="owner",
    ),
    CheckConstraint("(kms_key_id IS NULL) = (wrapped IS NULL)", name="wrapped"),
    CheckConstraint("number BETWEEN 1 AND 10000", name="number"),
    _reference("fk_storage_pieces_object", "object_id", "storage_objects"),
    _reference("fk_storage_pieces_upload", "upload_id", "storage_uploads"),
    partial_index("uq_storage_pieces_object", "object_id", "number", unique=True, where=OF_OBJECT),
    partial_index("uq_storage_pieces_upload", "upload_id", "number", unique=True, where=OF_UPLOAD),
    partial_index("ix_storage_pieces_condemned", "condemned_at", where=IS_CONDEMNED),
    partial_index("ix_storage_pieces_verified_at", "verified_at", "id", where=IS_DUE),
    partial_index("ix_storage_pieces_damaged", "account_id", "id", where=IS_DAMAGED),
    partial_index("ix_storage_pieces_kms_key_id", "kms_key_id", "encoding", where=IS_KEYED),
)

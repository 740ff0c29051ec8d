"""The tables of buckets, objects, multipart uploads and pieces (the stored bytes)."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
    text,
)

from cloudcore.db.schema import Id, Moment
from cloudcore.db.tables import (
    columns,
    indexes,
    named_index,
    not_negative,
    refers,
    table,
    unique_index,
)
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
    """Return a foreign key to the id of a row of the same account."""
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

# The resources that need a bucket. A bucket with such a row cannot be deleted, even if it is empty.
bucket_uses = table(
    "bucket_uses",
    columns(Id, "bucket_id KEY, user_id KEY, account_id"),
    columns(Text, "words"),
    _reference("fk_bucket_uses_bucket", "bucket_id", "storage_buckets"),
    indexes("account_id, bucket_id"),
)

# The usage of a bucket is the sum of its shards. With several, writers rarely wait for one row.
storage_counts = table(
    "storage_counts",
    columns(Id, "bucket_id KEY, account_id"),
    columns(Integer, "shard KEY"),
    columns(BigInteger, "objects, object_bytes, upload_bytes"),
    _reference("fk_storage_counts_bucket", "bucket_id", "storage_buckets"),
    indexes("account_id, bucket_id"),
)

# The bytes of an account's pieces, including condemned ones: the sum of the account's shards.
storage_account_bytes = table(
    "storage_account_bytes",
    refers("account_id KEY", "accounts"),
    columns(Integer, "shard KEY"),
    columns(BigInteger, "bytes"),
)

# Keys are stored as bytes of UTF-8: PostgreSQL and SQLite sort bytes alike, but not text.
storage_objects = table(
    "storage_objects",
    columns(Id, "bucket_id, account_id"),
    columns(StorageClassName, "storage_class"),
    columns(String(40), "etag"),
    columns(BigInteger, "size"),
    columns(Moment, "created_at"),
    columns(LargeBinary, "key"),
    columns(Text, "content_type"),
    columns(Text, "headers, metadata, tags"),  # JSON objects
    columns(Text, "checksum NULL"),  # a JSON array: algorithm, value, type
    UniqueConstraint("id", "account_id"),
    UniqueConstraint("bucket_id", "key"),
    not_negative("size"),
    _reference("fk_storage_objects_bucket", "bucket_id", "storage_buckets"),
)

# The row of a completed upload is kept for a day, to answer a repeated completion.
storage_uploads = table(
    "storage_uploads",
    columns(Id, "bucket_id, account_id"),
    columns(StorageClassName, "storage_class"),
    columns(String(16), "checksum_algorithm NULL, checksum_type NULL"),
    columns(Moment, "created_at"),
    columns(Moment, "ended_at NULL"),  # completed
    columns(LargeBinary, "key"),
    columns(Text, "content_type, headers, metadata, tags"),
    # A JSON object: a hash of the request, and the object that was made.
    columns(Text, "completion NULL"),
    UniqueConstraint("id", "account_id"),
    CheckConstraint("(ended_at IS NULL) = (completion IS NULL)", name="completion"),
    _reference("fk_storage_uploads_bucket", "bucket_id", "storage_buckets"),
    named_index("open", "bucket_id, key, id", IS_OPEN.text),
    indexes("bucket_id", "created_at"),
    named_index("ended_at", "ended_at", IS_ENDED.text),
)

# A piece belongs to one object, or is a part of one upload, or is condemned: it belongs to neither,
# and will be deleted. Its id is the id of the stored bytes. A piece is shredded, and has no bytes,
# after its KMS key was deleted.
storage_pieces = table(
    "storage_pieces",
    refers("account_id", "accounts"),
    columns(Id, "object_id NULL, upload_id NULL, kms_key_id NULL"),
    columns(String(16), "encoding"),
    columns(String(16), "damage NULL"),  # found by the scrub or fsck
    columns(String(32), "md5"),
    columns(String(64), "sha256"),
    columns(String(64), "stored_checksum NULL"),  # BLAKE3 of the stored bytes, if they are sealed
    columns(Integer, "number"),
    columns(BigInteger, "size, stored_size"),
    columns(Moment, "created_at, condemned_at NULL, damaged_at NULL, verified_at DEFAULT 0"),
    columns(Text, "checksum NULL"),  # of a part, by the algorithm of its upload
    columns(LargeBinary, "body NULL"),  # the stored bytes of a small one
    columns(LargeBinary, "wrapped NULL"),  # the data key
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
    unique_index("object", "object_id, number", OF_OBJECT.text),
    unique_index("upload", "upload_id, number", OF_UPLOAD.text),
    named_index("condemned", "condemned_at", IS_CONDEMNED.text),
    named_index("verified_at", "verified_at, id", IS_DUE.text),
    named_index("damaged", "account_id, id", IS_DAMAGED.text),
    named_index("kms_key_id", "kms_key_id, encoding", IS_KEYED.text),
)

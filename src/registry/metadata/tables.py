"""The tables of the registry's content, and the invariants that the database enforces.

Moments are microseconds since the epoch (UTC) in 64-bit integers; ids are UUIDs as 36-character
text; documents are JSON text. Names and tags sort by byte on both databases.

- A link (`repository_blobs`) cannot be deleted while a manifest references it, nor an object while
  it has a link.
- A link's digest, size and account equal its object's, so no link crosses accounts.
- Tags, children and blob edges stay inside their repository: every key carries `repository_id`.
- A child of an index cannot be deleted; deleting an index deletes its edges and tags.
- One live repository per name, one current object per digest and account; counters never negative.
- Content that a deleted image needs for its restoration cannot be deleted before its tombstone.
- The counted bytes of an account are not negative.
- A link is read through a wrap of its object's data key, and one repository, or account, has one
  current binding to a KMS key.

The tables of policies, pins, history and tombstones, which only the control plane and background
work use, are in `registry.metadata.control_tables`.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from cloudcore.db.schema import (
    ByteOrdered,
    DigestText,
    Id,
    Moment,
    foreign_key,
    metadata,
    partial_index,
)
from cloudcore.identity.tables import accounts
from cloudcore.kms import rows as _kms_tables  # noqa: F401 - foreign keys refer to them

repositories = Table(
    "repositories",
    metadata,
    Column("id", Id, primary_key=True),
    Column("account_id", ForeignKey(accounts.c.id), nullable=False),
    Column("name", ByteOrdered, nullable=False),
    Column("description", Text),
    Column("tags", Text, nullable=False, server_default=text("'{}'")),
    Column("tag_mutability", String(16), nullable=False),
    Column("immutable_tag_exclusions", Text, nullable=False, server_default=text("'[]'")),
    Column("source", String(32), nullable=False),
    Column("image_count", BigInteger, nullable=False, server_default=text("0")),
    Column("tag_count", BigInteger, nullable=False, server_default=text("0")),
    Column("tagged_image_count", BigInteger, nullable=False, server_default=text("0")),
    Column("size_bytes", BigInteger, nullable=False, server_default=text("0")),
    Column("deleted_image_count", BigInteger, nullable=False, server_default=text("0")),
    Column("deleted_tag_count", BigInteger, nullable=False, server_default=text("0")),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    Column("deleted_at", Moment),
    Column("deleted_by", Text),
    Column("deleted_by_source", Text),  # JSON: who is behind a role
    Column("restorable_until", Moment),  # null if live; later it is purged
    # Grows with each change of its tags and images, in the transaction of the change.
    Column("revision", BigInteger, nullable=False, server_default=text("0")),
    # An index may list a child that was deleted by force; what is pushed there may be that child.
    Column("is_sparse", Boolean, nullable=False, server_default=text("false")),
    UniqueConstraint("id", "account_id"),
    CheckConstraint("tag_mutability IN ('mutable', 'immutable')", name="tag_mutability"),
    CheckConstraint("source IN ('user', 'push', 'pull_through_cache')", name="source"),
    CheckConstraint("image_count >= 0", name="image_count"),
    CheckConstraint("tag_count >= 0", name="tag_count"),
    CheckConstraint("tagged_image_count >= 0", name="tagged_image_count"),
    CheckConstraint("size_bytes >= 0", name="size_bytes"),
    CheckConstraint("deleted_image_count >= 0", name="deleted_image_count"),
    CheckConstraint("deleted_tag_count >= 0", name="deleted_tag_count"),
)
_r = repositories.c
partial_index(
    "ix_repositories_restorable_until", _r.restorable_until, where=_r.restorable_until.is_not(None)
)
# Counts an account's deleted repositories that can be restored, without reading their rows.
partial_index(
    "ix_repositories_restorable",
    _r.account_id,
    _r.restorable_until,
    where=_r.restorable_until.is_not(None),
)
partial_index("ix_repositories_deleted", _r.account_id, _r.id, where=_r.deleted_at.is_not(None))
partial_index(
    "uq_repositories_live_name", _r.account_id, _r.name, unique=True, where=_r.deleted_at.is_(None)
)

blob_objects = Table(
    "blob_objects",
    metadata,
    Column("id", Id, primary_key=True),
    Column("account_id", ForeignKey(accounts.c.id), nullable=False),
    Column("digest", DigestText, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("stored_size", BigInteger, nullable=False),
    Column("encoding", String(16), nullable=False),
    Column("is_current", Boolean, nullable=False),
    Column("state", String(16), nullable=False),
    Column("condemned_at", Moment),
    Column("created_at", Moment, nullable=False),
    Column("verified_at", Moment, nullable=False, server_default=text("0")),
    Column("damage", String(16)),  # null: no damage known
    Column("damaged_at", Moment),
    # Of the bytes, in the store or in `inline_bytes`; new whenever they are written anew.
    Column("stored_id", Id, nullable=False),
    Column("is_inline", Boolean, nullable=False, server_default=text("false")),
    Column("checksum", String(64)),  # BLAKE3 of the stored bytes, hex; null: the digest is theirs
    UniqueConstraint("id", "account_id", "digest", "size"),
    Index("uq_blob_objects_stored_id", "stored_id", unique=True),
    CheckConstraint("size >= 0", name="size"),
    CheckConstraint("encoding IN ('plain', 'sealed')", name="encoding"),
    CheckConstraint("state IN ('live', 'condemned', 'shredded')", name="state"),
)
_o = blob_objects.c
partial_index("ix_blob_objects_plain", _o.account_id, _o.id, where=text("encoding = 'plain'"))
partial_index(
    "ix_blob_objects_verified_at",
    _o.verified_at,
    _o.id,
    where=text("damage IS NULL AND state <> 'shredded'"),
)
partial_index(
    "ix_blob_objects_condemned", _o.account_id, _o.condemned_at, where=text("state = 'condemned'")
)
partial_index("ix_blob_objects_damaged", _o.account_id, _o.digest, where=_o.damage.is_not(None))
partial_index("ix_blob_objects_replaced", _o.account_id, _o.id, where=text("NOT is_current"))
partial_index(
    "uq_blob_objects_current_digest",
    _o.account_id,
    _o.digest,
    unique=True,
    where=text("is_current"),
)

# The bytes of small objects, also of those in quarantine.
inline_bytes = Table(
    "inline_bytes",
    metadata,
    Column("stored_id", Id, primary_key=True),
    Column("body", LargeBinary, nullable=False),
)

# How many bytes of objects an account has, if that is counted: since a limit of them was met.
stored_bytes = Table(
    "stored_bytes",
    metadata,
    Column("account_id", ForeignKey(accounts.c.id), primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    CheckConstraint("bytes >= 0", name="bytes"),
)

# An object's data key, once for each KMS key that some link reads it through.
blob_object_keys = Table(
    "blob_object_keys",
    metadata,
    Column("object_id", ForeignKey("blob_objects.id", ondelete="CASCADE"), primary_key=True),
    Column("kms_key_id", Id, primary_key=True),
    Column("account_id", Id, nullable=False),
    Column("wrapped_data_key", LargeBinary),  # null: erased with the KMS key
    foreign_key("kms_keys", kms_key_id="id", account_id="account_id"),
)
_IS_ERASABLE: Final = text("wrapped_data_key IS NOT NULL")
_k = blob_object_keys.c
partial_index("ix_blob_object_keys_erasable", _k.kms_key_id, _k.object_id, where=_IS_ERASABLE)

digest_aliases = Table(
    "digest_aliases",
    metadata,
    Column("account_id", ForeignKey(accounts.c.id), primary_key=True),
    Column("alias", DigestText, primary_key=True),
    Column("digest", DigestText, nullable=False),
    Index(None, "account_id", "digest"),
)

repository_blobs = Table(
    "repository_blobs",
    metadata,
    Column("repository_id", Id, primary_key=True),
    Column("digest", DigestText, primary_key=True),
    Column("account_id", Id, nullable=False),
    Column("object_id", Id, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("manifest_refs", Integer, nullable=False),
    Column("touched_at", Moment, nullable=False),
    Column("kms_key_id", Id),  # through which it is read; null: the object is plain
    foreign_key("repositories", repository_id="id", account_id="account_id"),
    foreign_key(
        "blob_objects", object_id="id", account_id="account_id", digest="digest", size="size"
    ),
    foreign_key("blob_object_keys", object_id="object_id", kms_key_id="kms_key_id"),
    CheckConstraint("manifest_refs >= 0", name="manifest_refs"),
    Index(None, "object_id"),
    Index(None, "repository_id", "kms_key_id"),
)
_l = repository_blobs.c
partial_index(
    "ix_repository_blobs_unreferenced", _l.account_id, _l.touched_at, where=_l.manifest_refs == 0
)

manifest_bodies = Table(
    "manifest_bodies",
    metadata,
    Column("account_id", ForeignKey(accounts.c.id), primary_key=True),
    Column("digest", DigestText, primary_key=True),
    Column("body", LargeBinary, nullable=False),
)

manifests = Table(
    "manifests",
    metadata,
    Column("id", Id, primary_key=True),
    Column("repository_id", Id, nullable=False),
    Column("account_id", Id, nullable=False),
    Column("digest", DigestText, nullable=False),
    Column("media_type", Text, nullable=False),
    Column("artifact_type", Text),
    Column("config_digest", DigestText),
    Column("subject_digest", DigestText),
    Column("is_index", Boolean, nullable=False),
    Column("manifest_size_bytes", BigInteger, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("tag_count", BigInteger, nullable=False, server_default=text("0")),
    Column("annotations", Text, nullable=False),
    Column("pushed_at", Moment, nullable=False),
    Column("restored_at", Moment),
    Column("last_pulled_at", Moment),
    UniqueConstraint("repository_id", "digest"),
    UniqueConstraint("id", "repository_id"),
    foreign_key("repositories", repository_id="id", account_id="account_id"),
    foreign_key("manifest_bodies", account_id="account_id", digest="digest"),
    CheckConstraint("tag_count >= 0", name="tag_count"),
    Index(None, "repository_id", "id"),
    Index(None, "account_id", "digest"),
)
_m = manifests.c
partial_index(
    "ix_manifests_subject",
    _m.repository_id,
    _m.subject_digest,
    _m.id,
    where=_m.subject_digest.is_not(None),
)
partial_index("ix_manifests_untagged", _m.repository_id, _m.id, where=_m.tag_count == 0)
partial_index("ix_manifests_tagged", _m.repository_id, _m.id, where=_m.tag_count > 0)
partial_index(
    "ix_manifests_last_pulled_at",
    _m.repository_id,
    _m.last_pulled_at,
    where=_m.last_pulled_at.is_not(None),
)

manifest_blobs = Table(
    "manifest_blobs",
    metadata,
    Column("manifest_id", Id, primary_key=True),
    Column("digest", DigestText, primary_key=True),
    Column("repository_id", Id, nullable=False),
    foreign_key("manifests", ondelete="CASCADE", manifest_id="id", repository_id="repository_id"),
    foreign_key("repository_blobs", repository_id="repository_id", digest="digest"),
    # `digest` first: else, to cascade a manifest's deletion, SQLite would use this index and walk
    # all edges of the repository.
    Index(None, "digest", "repository_id"),
)

manifest_children = Table(
    "manifest_children",
    metadata,
    Column("parent_id", Id, primary_key=True),
    Column("child_digest", DigestText, primary_key=True),
    Column("repository_id", Id, nullable=False),
    Column("child_id", Id),  # null: not fetched yet, or deleted by force
    foreign_key("manifests", ondelete="CASCADE", parent_id="id", repository_id="repository_id"),
    foreign_key("manifests", child_id="id", repository_id="repository_id"),
    Index(None, "child_id"),
)
_c = manifest_children.c
partial_index(
    "ix_manifest_children_missing", _c.repository_id, _c.child_digest, where=_c.child_id.is_(None)
)

tags = Table(
    "tags",
    metadata,
    Column("repository_id", Id, primary_key=True),
    Column("name", ByteOrdered, primary_key=True),
    Column("manifest_id", Id, nullable=False),
    Column("pushed_digest", DigestText, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    # Of a tag of the pull-through cache, else null: until when the upstream is not asked, since
    # when it is not as an upstream said (null: it is), when one said it last, and with which ETag.
    Column("fresh_until", Moment),
    Column("stale_since", Moment),
    Column("checked_at", Moment),
    Column("upstream_etag", Text),
    foreign_key("manifests", ondelete="CASCADE", manifest_id="id", repository_id="repository_id"),
    Index(None, "manifest_id"),
)

uploads = Table(
    "uploads",
    metadata,
    Column("id", Id, primary_key=True),
    Column("repository_id", Id, nullable=False),
    Column("account_id", Id, nullable=False),
    Column("algorithm", String(16)),
    Column("received_bytes", BigInteger, nullable=False),
    Column("digests", Text),
    Column("stage_id", Id),  # under which its bytes are staged; null: under `id`
    # Whether a holder that has lost its lease may still write there.
    Column("stage_shared", Boolean, nullable=False),
    Column("lease_holder", Id),  # the worker process that may append; null: none
    Column("lease_token", BigInteger, nullable=False),  # grows by one each time it is taken
    Column("leased_until", Moment),
    Column("created_at", Moment, nullable=False),
    Column("expires_at", Moment, nullable=False, index=True),
    Column("kms_key_id", Id),  # that wraps the data key of the staged bytes; null: they are plain
    Column("wrapped_data_key", LargeBinary),
    # What was received, plain or sealed, as long as it may become an inline object; null: a file.
    Column("body", LargeBinary),
    foreign_key("repositories", repository_id="id", account_id="account_id"),
    CheckConstraint("received_bytes >= 0", name="received_bytes"),
    CheckConstraint("(lease_holder IS NULL) = (leased_until IS NULL)", name="lease"),
    CheckConstraint("(kms_key_id IS NULL) = (wrapped_data_key IS NULL)", name="data_key"),
    Index(None, "repository_id", "expires_at"),
    Index(None, "account_id", "expires_at"),
)
_u = uploads.c
partial_index("uq_uploads_stage_id", _u.stage_id, unique=True, where=_u.stage_id.is_not(None))

# Sessions that have ended before their id has expired; the id says when it was given out.
ended_uploads = Table(
    "ended_uploads", metadata, Column("id", Id, primary_key=True), sqlite_with_rowid=False
)

resource_policies = Table(
    "resource_policies",
    metadata,
    Column("repository_id", ForeignKey("repositories.id", ondelete="CASCADE"), primary_key=True),
    Column("document", Text, nullable=False),
    # Ids of its handles and names when it was written; see `identity.documents`.
    Column("principal_ids", Text, nullable=False),
    Column("visibility", String(16), nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("updated_at", Moment, nullable=False),
    CheckConstraint("visibility IN ('private', 'shared', 'public')", name="visibility"),
)

# The KMS key that seals new blobs of a repository, or of all without a key of their own.
encryption_bindings = Table(
    "encryption_bindings",
    metadata,
    Column("id", Id, primary_key=True),
    Column("account_id", ForeignKey(accounts.c.id), nullable=False),
    Column("repository_id", Id),  # null: the account's default
    Column("kms_key_id", Id, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("ended_at", Moment),
    foreign_key("repositories", ondelete="CASCADE", repository_id="id", account_id="account_id"),
    foreign_key("kms_keys", kms_key_id="id", account_id="account_id"),
    Index(None, "account_id", "repository_id", "id"),
    Index(None, "kms_key_id"),
)
_b = encryption_bindings.c
partial_index(
    "uq_encryption_bindings_repository",
    _b.repository_id,
    unique=True,
    where=text("ended_at IS NULL AND repository_id IS NOT NULL"),
)
partial_index(
    "uq_encryption_bindings_account",
    _b.account_id,
    unique=True,
    where=text("ended_at IS NULL AND repository_id IS NULL"),
)

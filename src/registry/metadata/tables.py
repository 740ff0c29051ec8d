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
- A link is read through a wrap of its object's data key, and each repository and account has at
  most one active binding to a KMS key.

The tables of policies, pins, history and tombstones, which only the control plane and background
work use, are in `registry.metadata.control_tables`.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from cloudcore.db.schema import ByteOrdered, DigestText, Id, Moment, foreign_key, one_of
from cloudcore.db.tables import (
    columns,
    indexes,
    named_index,
    not_negative,
    refers,
    table,
    unique_index,
)
from cloudcore.identity import tables as _identity_tables  # noqa: F401 - foreign keys refer to them
from cloudcore.kms import rows as _kms_tables  # noqa: F401

LAST_CHARACTER: Final = "\x7f"
"""Sorts after every character of a name or tag."""

repositories = table(
    "repositories",
    refers("account_id", "accounts"),
    columns(ByteOrdered, "name"),
    columns(sa.String(16), "tag_mutability"),
    columns(sa.String(32), "source"),
    # True: an index may list a child deleted by force; a manifest pushed later may be that child.
    columns(sa.Boolean, "is_sparse DEFAULT false"),
    columns(sa.BigInteger, "image_count DEFAULT 0, tag_count DEFAULT 0"),
    columns(sa.BigInteger, "tagged_image_count DEFAULT 0, size_bytes DEFAULT 0"),
    columns(sa.BigInteger, "deleted_image_count DEFAULT 0, deleted_tag_count DEFAULT 0"),
    # Grows with each change of its tags and images, in the transaction of the change.
    columns(sa.BigInteger, "revision DEFAULT 0"),
    columns(Moment, "created_at, updated_at, deleted_at NULL"),
    columns(Moment, "restorable_until NULL"),  # null if live; later it is purged
    columns(sa.Text, "description NULL, tags DEFAULT '{}', immutable_tag_exclusions DEFAULT '[]'"),
    columns(sa.Text, "deleted_by NULL"),
    columns(sa.Text, "deleted_by_source NULL"),  # JSON: who is behind a role
    sa.UniqueConstraint("id", "account_id"),
    not_negative("image_count, tag_count, tagged_image_count, size_bytes"),
    not_negative("deleted_image_count, deleted_tag_count"),
    one_of("tag_mutability", "mutable", "immutable"),
    one_of("source", "user", "push", "pull_through_cache"),
    named_index("deleted", "account_id, id", "deleted_at IS NOT NULL"),
    # Counts an account's deleted repositories that can be restored, without reading their rows.
    named_index("restorable", "account_id, restorable_until", "restorable_until IS NOT NULL"),
    named_index("restorable_until", "restorable_until", "restorable_until IS NOT NULL"),
    unique_index("live_name", "account_id, name", "deleted_at IS NULL"),
)

blob_objects = table(
    "blob_objects",
    refers("account_id", "accounts"),
    # Id of the bytes, in the store or in `inline_bytes`; new whenever they are written anew.
    columns(Id, "stored_id"),
    columns(DigestText, "digest"),
    columns(sa.String(16), "encoding, state"),
    columns(sa.String(16), "damage NULL"),  # null: no damage known
    columns(sa.String(64), "checksum NULL"),  # BLAKE3 of the stored bytes, hex; null: as the digest
    columns(sa.Boolean, "is_current, is_inline DEFAULT false"),
    columns(sa.BigInteger, "size, stored_size"),
    columns(Moment, "condemned_at NULL, created_at, verified_at DEFAULT 0, damaged_at NULL"),
    sa.UniqueConstraint("id", "account_id", "digest", "size"),
    not_negative("size"),
    one_of("encoding", "plain", "sealed"),
    one_of("state", "live", "condemned", "shredded"),
    named_index("condemned", "account_id, condemned_at", "state = 'condemned'"),
    named_index("damaged", "account_id, digest", "damage IS NOT NULL"),
    named_index("plain", "account_id, id", "encoding = 'plain'"),
    named_index("replaced", "account_id, id", "NOT is_current"),
    named_index("verified_at", "verified_at, id", "damage IS NULL AND state <> 'shredded'"),
    unique_index("current_digest", "account_id, digest", "is_current"),
    unique_index("stored_id", "stored_id"),
)

# The bytes of small objects, also of those in quarantine.
inline_bytes = table("inline_bytes", columns(Id, "stored_id KEY"), columns(sa.LargeBinary, "body"))

# The bytes of an account's objects, counted since its first push under a limit.
stored_bytes = table(
    "stored_bytes",
    refers("account_id KEY", "accounts"),
    columns(sa.BigInteger, "bytes"),
    not_negative("bytes"),
)

# An object's data key, once for each KMS key that some link reads it through.
blob_object_keys = table(
    "blob_object_keys",
    refers("object_id KEY", "blob_objects", "CASCADE"),
    columns(Id, "kms_key_id KEY, account_id"),
    columns(sa.LargeBinary, "wrapped_data_key NULL"),  # null: erased with the KMS key
    foreign_key("kms_keys", kms_key_id="id", account_id="account_id"),
    named_index("erasable", "kms_key_id, object_id", "wrapped_data_key IS NOT NULL"),
)

digest_aliases = table(
    "digest_aliases",
    refers("account_id KEY", "accounts"),
    columns(DigestText, "alias KEY, digest"),
    indexes("account_id, digest"),
)

repository_blobs = table(
    "repository_blobs",
    columns(Id, "repository_id KEY, account_id, object_id"),
    columns(Id, "kms_key_id NULL"),  # through which it is read; null: the object is plain
    columns(DigestText, "digest KEY"),
    columns(sa.Integer, "manifest_refs"),
    columns(sa.BigInteger, "size"),
    columns(Moment, "touched_at"),
    foreign_key("repositories", repository_id="id", account_id="account_id"),
    foreign_key(
        "blob_objects", object_id="id", account_id="account_id", digest="digest", size="size"
    ),
    foreign_key("blob_object_keys", object_id="object_id", kms_key_id="kms_key_id"),
    not_negative("manifest_refs"),
    indexes("object_id", "repository_id, kms_key_id"),
    named_index("unreferenced", "account_id, touched_at", "manifest_refs = 0"),
)

manifest_bodies = table(
    "manifest_bodies",
    refers("account_id KEY", "accounts"),
    columns(DigestText, "digest KEY"),
    columns(sa.LargeBinary, "body"),
)

manifests = table(
    "manifests",
    columns(Id, "repository_id, account_id"),
    columns(DigestText, "digest, config_digest NULL, subject_digest NULL"),
    columns(sa.Boolean, "is_index"),
    columns(sa.BigInteger, "manifest_size_bytes, size_bytes, tag_count DEFAULT 0"),
    columns(Moment, "pushed_at, restored_at NULL, last_pulled_at NULL"),
    columns(sa.Text, "media_type, artifact_type NULL, annotations"),
    foreign_key("repositories", repository_id="id", account_id="account_id"),
    foreign_key("manifest_bodies", account_id="account_id", digest="digest"),
    sa.UniqueConstraint("repository_id", "digest"),
    sa.UniqueConstraint("id", "repository_id"),
    not_negative("tag_count"),
    indexes("account_id, digest", "repository_id, id"),
    named_index("last_pulled_at", "repository_id, last_pulled_at", "last_pulled_at IS NOT NULL"),
    named_index("subject", "repository_id, subject_digest, id", "subject_digest IS NOT NULL"),
    named_index("tagged", "repository_id, id", "tag_count > 0"),
    named_index("untagged", "repository_id, id", "tag_count = 0"),
)

manifest_blobs = table(
    "manifest_blobs",
    columns(Id, "manifest_id KEY, repository_id"),
    columns(DigestText, "digest KEY"),
    foreign_key("manifests", ondelete="CASCADE", manifest_id="id", repository_id="repository_id"),
    foreign_key("repository_blobs", repository_id="repository_id", digest="digest"),
    # `digest` first: else, to cascade a manifest's deletion, SQLite would use this index and walk
    # all edges of the repository.
    indexes("digest, repository_id"),
)

manifest_children = table(
    "manifest_children",
    columns(Id, "parent_id KEY, repository_id"),
    columns(Id, "child_id NULL"),  # null: not fetched yet, or deleted by force
    columns(DigestText, "child_digest KEY"),
    foreign_key("manifests", ondelete="CASCADE", parent_id="id", repository_id="repository_id"),
    foreign_key("manifests", child_id="id", repository_id="repository_id"),
    indexes("child_id"),
    named_index("missing", "repository_id, child_digest", "child_id IS NULL"),
)

tags = table(
    "tags",
    columns(Id, "repository_id KEY, manifest_id"),
    columns(ByteOrdered, "name KEY"),
    columns(DigestText, "pushed_digest"),
    columns(Moment, "created_at, updated_at"),
    # Null unless the pull-through cache made the tag: until when the upstream is not asked again,
    # since when the upstream could not be asked (null: it could), when and with which ETag it
    # last confirmed the tag.
    columns(Moment, "fresh_until NULL, stale_since NULL, checked_at NULL"),
    columns(sa.Text, "upstream_etag NULL"),
    foreign_key("manifests", ondelete="CASCADE", manifest_id="id", repository_id="repository_id"),
    indexes("manifest_id"),
)

uploads = table(
    "uploads",
    columns(Id, "repository_id, account_id"),
    columns(Id, "stage_id NULL"),  # under which its bytes are staged; null: under `id`
    columns(Id, "lease_holder NULL"),  # the worker process that may append; null: none
    columns(Id, "kms_key_id NULL"),  # that wraps the data key; null: the staged bytes are plain
    columns(sa.String(16), "algorithm NULL"),
    # True if a holder that has lost its lease may still write to the stage.
    columns(sa.Boolean, "stage_shared"),
    columns(sa.BigInteger, "received_bytes"),
    columns(sa.BigInteger, "lease_token"),  # grows by one each time it is taken
    columns(Moment, "leased_until NULL, created_at, expires_at"),
    columns(sa.Text, "digests NULL"),
    columns(sa.LargeBinary, "wrapped_data_key NULL"),
    # The received bytes, plain or sealed, while they may become an inline object; null: a file.
    columns(sa.LargeBinary, "body NULL"),
    foreign_key("repositories", repository_id="id", account_id="account_id"),
    not_negative("received_bytes"),
    sa.CheckConstraint("(lease_holder IS NULL) = (leased_until IS NULL)", name="lease"),
    sa.CheckConstraint("(kms_key_id IS NULL) = (wrapped_data_key IS NULL)", name="data_key"),
    indexes("account_id, expires_at", "expires_at", "repository_id, expires_at"),
    unique_index("stage_id", "stage_id", "stage_id IS NOT NULL"),
)

# Sessions that have ended before their id has expired; the id says when it was given out.
ended_uploads = table("ended_uploads", has_rowid=False)

resource_policies = table(
    "resource_policies",
    refers("repository_id KEY", "repositories", "CASCADE"),
    columns(sa.String(16), "visibility"),
    columns(sa.BigInteger, "revision"),
    columns(Moment, "updated_at"),
    columns(sa.Text, "document"),
    # Ids of its handles and names when it was written; see `identity.rights.documents`.
    columns(sa.Text, "principal_ids"),
    one_of("visibility", "private", "shared", "public"),
)

# The KMS key that seals new blobs of a repository, or of all repositories without a binding.
encryption_bindings = table(
    "encryption_bindings",
    refers("account_id", "accounts"),
    columns(Id, "repository_id NULL"),  # null: the account's default
    columns(Id, "kms_key_id"),
    columns(Moment, "created_at, ended_at NULL"),
    foreign_key("repositories", ondelete="CASCADE", repository_id="id", account_id="account_id"),
    foreign_key("kms_keys", kms_key_id="id", account_id="account_id"),
    indexes("account_id, repository_id, id", "kms_key_id"),
    unique_index("account", "account_id", "ended_at IS NULL AND repository_id IS NULL"),
    unique_index("repository", "repository_id", "ended_at IS NULL AND repository_id IS NOT NULL"),
)

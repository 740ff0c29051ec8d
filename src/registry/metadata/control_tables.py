"""Tables that pulls do not read: history, tombstones, pins, policies, quarantine, sums.

A tombstone references the objects of a deleted image by foreign keys, so the objects cannot be
collected before the tombstone is removed.

Daily sums: numbers of pulls are written with each batch of pulls, sizes by a measurement every six
hours. A graph of an account then reads one row per day, and a list of growing or stale repositories
reads as many rows as it shows.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from cloudcore.db.schema import ByteOrdered, DigestText, Id, Moment, foreign_key, one_of
from cloudcore.db.tables import (
    RowNumber,
    columns,
    indexes,
    named_index,
    not_negative,
    refers,
    table,
    unique_index,
)
from registry.metadata import tables as _tables  # noqa: F401 - foreign keys refer to them

registry_settings = table(
    "registry_settings",
    refers("account_id KEY", "accounts"),
    columns(sa.Boolean, "access_key_login DEFAULT false"),
    columns(sa.Integer, "undelete_days"),
    columns(Moment, "updated_at"),
    columns(sa.Text, "uncounted_pullers"),  # CRN patterns
    sa.CheckConstraint("undelete_days BETWEEN 0 AND 90", name="undelete_days"),
)

tag_events = table(
    "tag_events",
    columns(RowNumber, "sequence KEY"),
    refers("repository_id", "repositories", "CASCADE"),
    # Images, which may be deleted since.
    columns(Id, "manifest_id NULL, previous_manifest_id NULL"),
    columns(ByteOrdered, "tag"),
    columns(DigestText, "digest NULL"),  # null: the tag was deleted
    columns(DigestText, "previous_digest NULL"),  # null: there was no such tag
    columns(sa.String(16), "action"),
    columns(sa.BigInteger, "ordinal"),  # of the tag's events, without gaps
    columns(Moment, "occurred_at"),
    columns(sa.Text, "principal"),  # CRN; empty: not signed in
    columns(sa.Text, "source NULL"),  # JSON: who is behind the principal
    one_of("action", "created", "moved", "deleted", "restored"),
    sa.CheckConstraint("(digest IS NULL) = (action = 'deleted')", name="digest"),
    indexes("repository_id, sequence", "repository_id, tag, sequence"),
    named_index(
        "previous_digest",
        "repository_id, previous_digest, occurred_at",
        "previous_digest IS NOT NULL",
    ),
)

deleted_tags = table(
    "deleted_tags",
    refers("repository_id KEY", "repositories", "CASCADE"),
    columns(ByteOrdered, "name KEY"),
    columns(DigestText, "digest, pushed_digest"),  # what it pointed to
    columns(sa.Boolean, "has_image"),  # else its image has a tombstone
    columns(sa.BigInteger, "sequence"),  # of its deletion's event
    columns(Moment, "created_at"),  # of the tag
    columns(Moment, "deleted_at, restorable_until"),
    columns(sa.Text, "deleted_by, deleted_by_source NULL"),
    indexes("repository_id, digest", "restorable_until"),
    named_index("restorable", "repository_id, restorable_until", "has_image"),
    named_index("sequence", "repository_id, sequence", "has_image"),
)

deleted_manifests = table(
    "deleted_manifests",
    # Its id is the manifest's.
    columns(Id, "repository_id, account_id"),
    columns(DigestText, "digest, config_digest NULL, subject_digest NULL"),
    columns(sa.Boolean, "is_index"),
    columns(sa.BigInteger, "manifest_size_bytes, size_bytes"),
    columns(Moment, "pushed_at, last_pulled_at NULL, deleted_at, restorable_until"),
    columns(sa.Text, "media_type, artifact_type NULL, deleted_by, deleted_by_source NULL"),
    columns(sa.Text, "tags"),  # JSON pairs: tag, digest it was pushed by
    columns(sa.Text, "annotations"),
    foreign_key("repositories", repository_id="id", account_id="account_id"),
    foreign_key("manifest_bodies", account_id="account_id", digest="digest"),
    indexes("restorable_until"),
    named_index("deleted_at", "repository_id, deleted_at, id"),
    named_index("restorable", "repository_id, restorable_until"),
    # Digest first: it also serves to find whether a manifest's body is still needed.
    unique_index("digest", "digest, repository_id"),
)

deleted_manifest_blobs = table(
    "deleted_manifest_blobs",
    refers("manifest_id KEY", "deleted_manifests", "CASCADE"),
    columns(DigestText, "digest KEY"),
    columns(Id, "object_id, account_id, kms_key_id NULL"),  # as in `repository_blobs`
    columns(sa.BigInteger, "size"),
    foreign_key(
        "blob_objects", object_id="id", account_id="account_id", digest="digest", size="size"
    ),
    foreign_key("blob_object_keys", object_id="object_id", kms_key_id="kms_key_id"),
    indexes("object_id"),
)

deleted_manifest_children = table(
    "deleted_manifest_children",
    refers("manifest_id KEY", "deleted_manifests", "CASCADE"),
    columns(DigestText, "child_digest KEY"),
    columns(sa.Boolean, "is_missing DEFAULT false"),
)

# Numbers of live repositories per folder: a prefix of names up to a slash, or the empty prefix.
repository_folders = table(
    "repository_folders",
    refers("account_id KEY", "accounts"),
    columns(ByteOrdered, "folder KEY"),
    columns(sa.BigInteger, "repository_count"),
    not_negative("repository_count"),
)

lifecycle_policies = table(
    "lifecycle_policies",
    refers("repository_id KEY", "repositories", "CASCADE"),
    columns(sa.BigInteger, "revision"),
    columns(Moment, "next_run_at, updated_at"),
    columns(sa.Text, "document"),
    indexes("next_run_at"),
)

# The last revision of a deleted policy; the repository's next policy continues from it.
policy_revisions = table(
    "policy_revisions",
    refers("repository_id KEY", "repositories", "CASCADE"),
    columns(sa.String(16), "kind KEY"),
    columns(sa.BigInteger, "revision"),
    one_of("kind", "resource", "lifecycle"),
)

image_pins = table(
    "image_pins",
    columns(Id, "manifest_id KEY, repository_id"),
    columns(ByteOrdered, "name KEY"),
    columns(Moment, "expires_at NULL, created_at"),  # null: it never expires
    columns(sa.Text, "created_by, created_by_source NULL"),
    foreign_key("manifests", ondelete="CASCADE", manifest_id="id", repository_id="repository_id"),
    indexes("repository_id, manifest_id"),
    named_index("expires_at", "expires_at", "expires_at IS NOT NULL"),
)
_p = image_pins.c
PIN_HOLDS: Final = sa.or_(_p.expires_at.is_(None), _p.expires_at > sa.bindparam("now"))
"""The pin has not expired at ``:now``."""

quarantined_objects = table(
    "quarantined_objects",
    # `id` is the object's id; or a new id if the object lives on with other bytes.
    refers("account_id", "accounts"),
    columns(Id, "stored_id"),  # of the bytes; see `blob_objects`
    columns(DigestText, "digest"),
    columns(sa.String(16), "encoding"),
    columns(sa.String(64), "checksum NULL"),
    columns(sa.Boolean, "is_inline DEFAULT false"),
    columns(sa.BigInteger, "size, stored_size"),
    columns(Moment, "swept_at"),
    columns(Moment, "removal_began_at NULL"),  # null: the bytes still exist
    indexes("account_id, digest", "account_id, swept_at"),
    unique_index("stored_id", "stored_id"),
)
OF_THE_BYTES: Final = (
    *("account_id", "digest", "size", "stored_size", "encoding", "stored_id"),
    *("is_inline", "checksum"),
)
"""Columns of `blob_objects` that are copied to the quarantine with the bytes."""

# The data key of each sealed object in quarantine, as in `blob_object_keys`.
quarantined_object_keys = table(
    "quarantined_object_keys",
    refers("quarantined_id KEY", "quarantined_objects", "CASCADE"),
    columns(Id, "kms_key_id KEY, account_id"),
    columns(sa.LargeBinary, "wrapped_data_key"),
    foreign_key("kms_keys", kms_key_id="id", account_id="account_id"),
    indexes("kms_key_id, quarantined_id"),
)

store_generations = table(
    "store_generations",
    columns(Moment, "noted_at"),
    columns(Moment, "accepted_at NULL"),  # when an operator accepted this database
    indexes("accepted_at", "noted_at"),
)

repository_days = table(
    "repository_days",
    refers("repository_id KEY", "repositories", "CASCADE"),
    columns(sa.Integer, "day KEY"),  # since the epoch, UTC
    columns(Id, "account_id"),
    columns(sa.BigInteger, "size_bytes, pulls"),  # the size as it was last measured on that day
    indexes("account_id, day", "day"),
)

# The sums of its repositories' rows; they stay when a repository is deleted.
account_days = table(
    "account_days",
    columns(Id, "account_id KEY"),
    columns(sa.Integer, "day KEY"),
    columns(sa.BigInteger, "size_bytes, pulls"),
    indexes("day"),
)

repository_activity = table(
    "repository_activity",
    refers("repository_id KEY", "repositories", "CASCADE"),
    columns(Id, "account_id"),
    columns(sa.BigInteger, "size_bytes"),
    columns(Moment, "used_at"),  # the last push or pull, or when it was made
    named_index("used_at", "account_id, used_at, repository_id", "size_bytes > 0"),
)
HOLDS_BYTES = sa.text("size_bytes > 0")

repository_growth = table(
    "repository_growth",
    refers("repository_id KEY", "repositories", "CASCADE"),
    columns(sa.Integer, "span KEY"),  # days until the measurement
    columns(Id, "account_id"),
    columns(sa.BigInteger, "size_before"),  # at the beginning of the span
    columns(sa.BigInteger, "size_bytes"),
    columns(sa.BigInteger, "change_bytes"),  # the difference, without its sign
    indexes("account_id, span, change_bytes, repository_id"),
)

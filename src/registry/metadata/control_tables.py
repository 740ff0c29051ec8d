"""The tables around the registry's content: history, tombstones, pins, policies, collector, days.

Pulls read none of them. A tombstone references the objects of a deleted image by foreign keys: they
cannot be collected before it is removed.

Of what repositories held by day, the rows of pulls are written with each batch of pulls, all others
by the measurement every six hours. So a graph of an account reads a row for each day, and a list of
what grew or of what is stale reads as many rows as it shows.
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
    bindparam,
    or_,
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
from registry.metadata.tables import repositories

registry_settings = Table(
    "registry_settings",
    metadata,
    Column("account_id", ForeignKey(accounts.c.id), primary_key=True),
    Column("undelete_days", Integer, nullable=False),
    Column("uncounted_pullers", Text, nullable=False),  # CRN patterns
    Column("access_key_login", Boolean, nullable=False, server_default=text("false")),
    Column("updated_at", Moment, nullable=False),
    CheckConstraint("undelete_days BETWEEN 0 AND 90", name="undelete_days"),
)

tag_events = Table(
    "tag_events",
    metadata,
    # SQLite assigns row numbers only to a key of the exact type INTEGER.
    Column("sequence", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True),
    Column("repository_id", ForeignKey(repositories.c.id, ondelete="CASCADE"), nullable=False),
    Column("tag", ByteOrdered, nullable=False),
    Column("ordinal", BigInteger, nullable=False),  # of the tag's events, without gaps
    Column("action", String(16), nullable=False),
    Column("digest", DigestText),  # null: the tag was deleted
    Column("previous_digest", DigestText),  # null: there was no such tag
    # Images, which may be deleted since.
    Column("manifest_id", Id),
    Column("previous_manifest_id", Id),
    Column("principal", Text, nullable=False),  # CRN; empty: not signed in
    Column("source", Text),  # JSON: who is behind the principal
    Column("occurred_at", Moment, nullable=False),
    CheckConstraint("action IN ('created', 'moved', 'deleted', 'restored')", name="action"),
    CheckConstraint("(digest IS NULL) = (action = 'deleted')", name="digest"),
    Index(None, "repository_id", "tag", "sequence"),
    Index(None, "repository_id", "sequence"),
)
_e = tag_events.c
partial_index(
    "ix_tag_events_previous_digest",
    _e.repository_id,
    _e.previous_digest,
    _e.occurred_at,
    where=_e.previous_digest.is_not(None),
)

deleted_tags = Table(
    "deleted_tags",
    metadata,
    Column("repository_id", ForeignKey(repositories.c.id, ondelete="CASCADE"), primary_key=True),
    Column("name", ByteOrdered, primary_key=True),
    Column("sequence", BigInteger, nullable=False),  # of its deletion's event
    Column("digest", DigestText, nullable=False),  # what it pointed to
    Column("pushed_digest", DigestText, nullable=False),
    Column("created_at", Moment, nullable=False),  # of the tag
    Column("has_image", Boolean, nullable=False),  # else its image has a tombstone
    Column("deleted_at", Moment, nullable=False),
    Column("deleted_by", Text, nullable=False),
    Column("deleted_by_source", Text),
    Column("restorable_until", Moment, nullable=False, index=True),
    Index(None, "repository_id", "digest"),
)
_d = deleted_tags.c
partial_index("ix_deleted_tags_sequence", _d.repository_id, _d.sequence, where=text("has_image"))
partial_index(
    "ix_deleted_tags_restorable", _d.repository_id, _d.restorable_until, where=text("has_image")
)

deleted_manifests = Table(
    "deleted_manifests",
    metadata,
    Column("id", Id, primary_key=True),  # the manifest's
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
    Column("annotations", Text, nullable=False),
    Column("tags", Text, nullable=False),  # JSON pairs: tag, digest it was pushed by
    Column("pushed_at", Moment, nullable=False),
    Column("last_pulled_at", Moment),
    Column("deleted_at", Moment, nullable=False),
    Column("deleted_by", Text, nullable=False),
    Column("deleted_by_source", Text),
    Column("restorable_until", Moment, nullable=False, index=True),
    foreign_key("repositories", repository_id="id", account_id="account_id"),
    foreign_key("manifest_bodies", account_id="account_id", digest="digest"),
    Index("ix_deleted_manifests_deleted_at", "repository_id", "deleted_at", "id"),
    Index("ix_deleted_manifests_restorable", "repository_id", "restorable_until"),
    # Digest first: it also serves to find whether a manifest's body is still needed.
    Index("uq_deleted_manifests_digest", "digest", "repository_id", unique=True),
)

deleted_manifest_blobs = Table(
    "deleted_manifest_blobs",
    metadata,
    Column("manifest_id", ForeignKey(deleted_manifests.c.id, ondelete="CASCADE"), primary_key=True),
    Column("digest", DigestText, primary_key=True),
    Column("object_id", Id, nullable=False),
    Column("account_id", Id, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("kms_key_id", Id),  # as in `repository_blobs`
    foreign_key(
        "blob_objects", object_id="id", account_id="account_id", digest="digest", size="size"
    ),
    foreign_key("blob_object_keys", object_id="object_id", kms_key_id="kms_key_id"),
    Index(None, "object_id"),
)

deleted_manifest_children = Table(
    "deleted_manifest_children",
    metadata,
    Column("manifest_id", ForeignKey(deleted_manifests.c.id, ondelete="CASCADE"), primary_key=True),
    Column("child_digest", DigestText, primary_key=True),
    Column("is_missing", Boolean, nullable=False, server_default=text("false")),
)

# Numbers of live repositories per folder: a prefix of names up to a slash, or the empty prefix.
repository_folders = Table(
    "repository_folders",
    metadata,
    Column("account_id", ForeignKey(accounts.c.id), primary_key=True),
    Column("folder", ByteOrdered, primary_key=True),
    Column("repository_count", BigInteger, nullable=False),
    CheckConstraint("repository_count >= 0", name="repository_count"),
)

lifecycle_policies = Table(
    "lifecycle_policies",
    metadata,
    Column("repository_id", ForeignKey(repositories.c.id, ondelete="CASCADE"), primary_key=True),
    Column("document", Text, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("next_run_at", Moment, nullable=False, index=True),
    Column("updated_at", Moment, nullable=False),
)

# The last revision of a deleted policy; the repository's next policy continues from it.
policy_revisions = Table(
    "policy_revisions",
    metadata,
    Column("repository_id", ForeignKey(repositories.c.id, ondelete="CASCADE"), primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("revision", BigInteger, nullable=False),
    CheckConstraint("kind IN ('resource', 'lifecycle')", name="kind"),
)

image_pins = Table(
    "image_pins",
    metadata,
    Column("manifest_id", Id, primary_key=True),
    Column("name", ByteOrdered, primary_key=True),
    Column("repository_id", Id, nullable=False),
    Column("expires_at", Moment),  # null: never
    Column("created_by", Text, nullable=False),
    Column("created_by_source", Text),
    Column("created_at", Moment, nullable=False),
    foreign_key("manifests", ondelete="CASCADE", manifest_id="id", repository_id="repository_id"),
    Index(None, "repository_id", "manifest_id"),
)
_p = image_pins.c
partial_index("ix_image_pins_expires_at", _p.expires_at, where=_p.expires_at.is_not(None))
PIN_HOLDS: Final = or_(_p.expires_at.is_(None), _p.expires_at > bindparam("now"))
"""A pin is in force."""

quarantined_objects = Table(
    "quarantined_objects",
    metadata,
    Column("id", Id, primary_key=True),  # the object's, or new if only its bytes were replaced
    Column("account_id", ForeignKey(accounts.c.id), nullable=False),
    Column("digest", DigestText, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("stored_size", BigInteger, nullable=False),
    Column("encoding", String(16), nullable=False),
    Column("swept_at", Moment, nullable=False),
    Column("removal_began_at", Moment),  # null: the bytes still exist
    Column("stored_id", Id, nullable=False),  # of the bytes; see `blob_objects`
    Column("is_inline", Boolean, nullable=False, server_default=text("false")),
    Column("checksum", String(64)),
    Index(None, "account_id", "swept_at"),
    Index(None, "account_id", "digest"),
    Index("uq_quarantined_objects_stored_id", "stored_id", unique=True),
)

OF_THE_BYTES: Final = (
    "account_id",
    "digest",
    "size",
    "stored_size",
    "encoding",
    "stored_id",
    "is_inline",
    "checksum",
)
"""Columns of `blob_objects` that go to the quarantine with the bytes."""

# The data key of each sealed object in quarantine, as in `blob_object_keys`.
quarantined_object_keys = Table(
    "quarantined_object_keys",
    metadata,
    Column(
        "quarantined_id", ForeignKey("quarantined_objects.id", ondelete="CASCADE"), primary_key=True
    ),
    Column("kms_key_id", Id, primary_key=True),
    Column("account_id", Id, nullable=False),
    Column("wrapped_data_key", LargeBinary, nullable=False),
    foreign_key("kms_keys", kms_key_id="id", account_id="account_id"),
    Index(None, "kms_key_id", "quarantined_id"),
)

store_generations = Table(
    "store_generations",
    metadata,
    Column("id", Id, primary_key=True),
    Column("noted_at", Moment, nullable=False),
    Column("accepted_at", Moment),  # when an operator accepted this database
    Index(None, "noted_at"),
    Index(None, "accepted_at"),
)


repository_days = Table(
    "repository_days",
    metadata,
    Column("repository_id", ForeignKey(repositories.c.id, ondelete="CASCADE"), primary_key=True),
    Column("day", Integer, primary_key=True),  # since the epoch, UTC
    Column("account_id", Id, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),  # when it was last measured on that day
    Column("pulls", BigInteger, nullable=False),
    Index(None, "account_id", "day"),
    Index(None, "day"),
)

# The sums of its repositories' rows; they stay when a repository is deleted.
account_days = Table(
    "account_days",
    metadata,
    Column("account_id", Id, primary_key=True),
    Column("day", Integer, primary_key=True),
    Column("size_bytes", BigInteger, nullable=False),
    Column("pulls", BigInteger, nullable=False),
    Index(None, "day"),
)

repository_activity = Table(
    "repository_activity",
    metadata,
    Column("repository_id", ForeignKey(repositories.c.id, ondelete="CASCADE"), primary_key=True),
    Column("account_id", Id, nullable=False),
    Column("used_at", Moment, nullable=False),  # the last push or pull, or when it was made
    Column("size_bytes", BigInteger, nullable=False),
)
HOLDS_BYTES = text("size_bytes > 0")
_a = repository_activity.c
partial_index(
    "ix_repository_activity_used_at", _a.account_id, _a.used_at, _a.repository_id, where=HOLDS_BYTES
)

repository_growth = Table(
    "repository_growth",
    metadata,
    Column("repository_id", ForeignKey(repositories.c.id, ondelete="CASCADE"), primary_key=True),
    Column("span", Integer, primary_key=True),  # days until the measurement
    Column("account_id", Id, nullable=False),
    Column("size_before", BigInteger, nullable=False),  # at the beginning of the span
    Column("size_bytes", BigInteger, nullable=False),
    Column("change_bytes", BigInteger, nullable=False),  # the difference, without its sign
    Index(None, "account_id", "span", "change_bytes", "repository_id"),
)

"""Manifests, their bytes (once per account), and their edges to blobs, children and subjects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from sqlalchemy import Select, and_, bindparam, case, literal_column, or_, select

from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import bound, columns_of, count, find_one, given, insert_new, value
from cloudcore.db.statement import Statement, listed, paged, text_list
from cloudcore.identity.tables import accounts
from registry.metadata.control_tables import deleted_manifests
from registry.metadata.repositories.repository import IS_NAMED
from registry.metadata.tables import (
    manifest_blobs,
    manifest_bodies,
    manifest_children,
    manifests,
    repositories,
    repository_blobs,
    tags,
)

_m = manifests.c
_b = manifest_bodies.c
_MAX_PARENTS: Final = 20
SMALL_BYTES: Final = 64 * 1024
"""The largest manifest whose bytes are read by the same statement as its row."""


class StoredManifest(NamedTuple):
    """A manifest as a pull returns it: its bytes and the media type they were pushed with."""

    id: str
    repository_id: str
    digest: str
    media_type: str
    pushed_digest: str
    """If found by tag, the digest, of any algorithm, that the tag was pushed with; else the sha256.
    """
    fresh_until: int | None = None
    """If found by a tag of the pull-through cache, the time before which the upstream need not be
    asked again; else None."""
    stale_since: int | None = None
    """If the upstream could not be asked about that tag again, when it last confirmed the tag; else
    None."""
    body: bytes = b""
    """Empty if larger than `SMALL_BYTES`: then read it with `details.find_document`."""


class BodyComparison(Enum):
    """How a pushed manifest's body compares with the account's stored copy."""

    NEW = "new"
    """The account had no copy."""
    WHOLE = "whole"
    """The stored copy has the same bytes."""
    HEALED = "healed"
    """The stored copy had other bytes, and was replaced."""


class ManifestRow(NamedTuple):
    """The columns of a manifest that pushes and deletions need."""

    id: str
    digest: str
    size_bytes: int
    tag_count: int
    media_type: str


class Description(NamedTuple):
    """The type of a manifest, and its subject."""

    media_type: str | None = None
    artifact_type: str | None = None
    subject: str | None = None
    """Digest of the manifest's subject."""


class Referrer(NamedTuple):
    """A manifest in a subject's list of referrers (end-12)."""

    id: str
    digest: str
    media_type: str
    size: int
    artifact_type: str | None


class NewManifest(NamedTuple):
    """A manifest to be stored."""

    id: str
    repository_id: str
    account_id: str
    digest: str
    media_type: str
    artifact_type: str | None
    config_digest: str | None
    subject_digest: str | None
    is_index: bool
    manifest_size_bytes: int
    size_bytes: int
    annotations: str
    """JSON object of strings."""


HAS_SUBJECT: Final = and_(
    _m.subject_digest == bindparam("subject"),
    _m.subject_digest.is_not(None),  # so that the partial index applies
)
"""The manifest's subject is ``:subject``."""
IS_OF_TYPE: Final = or_(
    value("artifact_type", _m.artifact_type) == literal_column("''"), given(_m.artifact_type)
)
"""The manifest has the type ``:artifact_type``, or that parameter is empty."""


def _served() -> Select[Any]:
    return (
        select(_m.id, _m.repository_id, _m.digest, _m.media_type)
        .select_from(manifests)
        .join(repositories, repositories.c.id == _m.repository_id)
        .join(accounts, accounts.c.id == repositories.c.account_id)
        .where(IS_NAMED)
    )


def _with_body(found: Select[Any]) -> Select[Any]:
    is_body = and_(_b.account_id == _m.account_id, _b.digest == _m.digest)
    is_small = _m.manifest_size_bytes <= literal_column(str(SMALL_BYTES))
    return found.add_columns(case((is_small, _b.body))).join(manifest_bodies, is_body)


_TAGGED_ONE: Final = (
    _served()
    .add_columns(tags.c.pushed_digest, tags.c.fresh_until, tags.c.stale_since)
    .join(tags, tags.c.manifest_id == _m.id)
    .where(tags.c.repository_id == repositories.c.id, tags.c.name == bindparam("tag"))
)
_NAMED_ONE: Final = _served().where(given(_m.digest))
_BY_TAG: Final = Statement(_with_body(_TAGGED_ONE))
_BY_DIGEST: Final = Statement(_with_body(_NAMED_ONE))
_SEE_BY_TAG: Final = Statement(_TAGGED_ONE)
_SEE_BY_DIGEST: Final = Statement(_NAMED_ONE)
_COLUMNS: Final = columns_of(manifests, ManifestRow._fields)
_ROW: Final = Statement(_COLUMNS.where(given(_m.repository_id, _m.digest)))
_ROWS: Final = Statement(
    _COLUMNS.where(given(_m.repository_id), _m.digest.in_(listed("digests")))
    .order_by(_m.digest)
    .with_for_update(key_share=True)
)
_ADD_BODY: Final = Statement(insert_new(manifest_bodies, ("account_id", "digest", "body")))
_OF_BODY: Final = given(_b.account_id, _b.digest)
_HOLD_BODY: Final = Statement(
    select(_b.body == bindparam("body")).where(_OF_BODY).with_for_update(read=True, key_share=True)
)
_HEAL_BODY: Final = Statement(
    manifest_bodies.update()
    .where(_OF_BODY, _b.body != bindparam("body"))
    .values(body=bindparam("body"))
)
_ADD: Final = Statement(manifests.insert().values(bound((*NewManifest._fields, "pushed_at"))))
_ADD_BLOB_EDGES: Final = Statement(
    manifest_blobs.insert().from_select(
        ["manifest_id", "digest", "repository_id"],
        select(
            value("manifest_id", _m.id), repository_blobs.c.digest, repository_blobs.c.repository_id
        ).where(
            given(repository_blobs.c.repository_id),
            repository_blobs.c.digest.in_(listed("digests")),
        ),
    )
)
_ADD_CHILD_EDGES: Final = Statement(
    manifest_children.insert().from_select(
        ["parent_id", "child_digest", "repository_id", "child_id"],
        select(value("parent_id", _m.id), _m.digest, _m.repository_id, _m.id).where(
            given(_m.repository_id), _m.digest.in_(listed("digests"))
        ),
    )
)
_BLOBS_OF: Final = Statement(
    select(manifest_blobs.c.digest).where(manifest_blobs.c.manifest_id.in_(listed("ids")))
)
_PARENTS: Final = paged(
    select(_m.digest)
    .join(manifest_children, manifest_children.c.parent_id == _m.id)
    .where(manifest_children.c.child_id == bindparam("manifest_id"))
    .order_by(_m.digest)
)
_LISTED: Final = Statement(
    select(_m.id).where(
        _m.id.in_(listed("ids")),
        select(manifest_children.c.parent_id).where(manifest_children.c.child_id == _m.id).exists(),
    )
)
_DESCRIBE: Final = Statement(
    select(_m.id, _m.media_type, _m.artifact_type, _m.subject_digest).where(
        _m.id.in_(listed("ids"))
    )
)
_REMOVE: Final = Statement(manifests.delete().where(_m.id.in_(listed("ids"))))
_IS_UNUSED: Final = (
    _OF_BODY,
    *(
        ~select(table.c.id)
        .where(table.c.account_id == _b.account_id, table.c.digest == _b.digest)
        .correlate(manifest_bodies)
        .exists()
        for table in (manifests, deleted_manifests)
    ),
)
_LOCK_UNUSED_BODY: Final = Statement(select(_b.digest).where(*_IS_UNUSED).with_for_update())
_REMOVE_BODY: Final = Statement(manifest_bodies.delete().where(*_IS_UNUSED))
_TAGGED: Final = Statement(
    manifests.update()
    .where(_m.id == bindparam("manifest_id"))
    .values(tag_count=_m.tag_count + bindparam("change"))
    .returning(_m.tag_count)
)
_REFERRERS: Final = paged(
    select(_m.id, _m.digest, _m.media_type, _m.manifest_size_bytes, _m.artifact_type)
    .where(given(_m.repository_id), HAS_SUBJECT, _m.id > bindparam("after"), IS_OF_TYPE)
    .order_by(_m.id)
)
_ANNOTATIONS: Final = Statement(
    select(_m.id, _m.annotations).where(given(_m.repository_id), _m.id.in_(listed("ids")))
)
_PULLED: Final = Statement(
    manifests.update()
    .where(
        _m.id == bindparam("manifest_id"),
        or_(_m.last_pulled_at.is_(None), _m.last_pulled_at < bindparam("minute")),
    )
    .values(last_pulled_at=bindparam("minute"))
)


def find_by_tag(tx: Connection, handle: str, name: str, tag: str) -> StoredManifest | None:
    """Return the manifest that a tag of a live repository points to, or None."""
    row = tx.row(_BY_TAG, handle=handle, name=name, tag=tag)
    return StoredManifest._make((*row[:7], row[7] or b"")) if row else None


def find_by_digest(tx: Connection, handle: str, name: str, digest: str) -> StoredManifest | None:
    """Return the manifest with this sha256 in a live repository, or None."""
    row = tx.row(_BY_DIGEST, handle=handle, name=name, digest=digest)
    return _of_digest(row)._replace(body=row[4] or b"") if row else None


def find_row_by_tag(tx: Connection, handle: str, name: str, tag: str) -> StoredManifest | None:
    """Like `find_by_tag`, without the manifest's bytes."""
    return find_one(tx, StoredManifest, _SEE_BY_TAG, handle=handle, name=name, tag=tag)


def find_row_by_digest(
    tx: Connection, handle: str, name: str, digest: str
) -> StoredManifest | None:
    """Like `find_by_digest`, without the manifest's bytes."""
    row = tx.row(_SEE_BY_DIGEST, handle=handle, name=name, digest=digest)
    return _of_digest(row) if row else None


def _of_digest(row: Row) -> StoredManifest:
    return StoredManifest(row[0], row[1], row[2], row[3], pushed_digest=row[2])


def find_manifest(tx: Connection, repository_id: str, digest: str) -> ManifestRow | None:
    """Return the row of a manifest with this sha256, or None."""
    return find_one(tx, ManifestRow, _ROW, repository_id=repository_id, digest=digest)


def find_manifests(
    tx: Connection, repository_id: str, digests: Sequence[str]
) -> dict[str, ManifestRow]:
    """Map these digests to the repository's manifests, locked against deletion until `tx` ends.

    Digests without a manifest are left out.
    """
    if not digests:
        return {}
    rows = tx.rows(_ROWS, repository_id=repository_id, digests=text_list(digests))
    return {row[1]: ManifestRow(*row) for row in rows}


def add_manifest(tx: Connection, new: NewManifest, body: bytes, now: int) -> BodyComparison:
    """Insert a manifest and its body (see `keep_body`).

    Return how the body compares with the account's stored copy.
    """
    of_body = {"account_id": new.account_id, "digest": new.digest}
    if tx.execute(_ADD_BODY, **of_body, body=body):
        kept = BodyComparison.NEW
    else:
        kept = keep_body(tx, new.account_id, new.digest, body)
    tx.execute(_ADD, **new._asdict(), pushed_at=now)
    return kept


def keep_body(tx: Connection, account_id: str, digest: str, body: bytes) -> BodyComparison:
    """Insert a manifest's body unless the account has a copy; replace a copy that is damaged.

    Return how `body` compares with the copy. The caller has verified `body` against `digest`. The
    row is locked against deletion until the transaction ends.
    """
    of_body = {"account_id": account_id, "digest": digest}
    while (held := tx.row(_HOLD_BODY, **of_body, body=body)) is None:
        # The body is missing: a deletion in another repository removed it.
        if tx.execute(_ADD_BODY, **of_body, body=body):
            return BodyComparison.NEW
    if held[0]:
        return BodyComparison.WHOLE
    tx.execute(_HEAL_BODY, **of_body, body=body)
    return BodyComparison.HEALED


def add_blob_edges(
    tx: Connection, manifest_id: str, repository_id: str, digests: Sequence[str]
) -> None:
    """Insert the edges of a manifest to blobs of its repository."""
    tx.execute(
        _ADD_BLOB_EDGES,
        manifest_id=manifest_id,
        repository_id=repository_id,
        digests=text_list(digests),
    )


def add_child_edges(
    tx: Connection, parent_id: str, repository_id: str, digests: Sequence[str]
) -> None:
    """Insert the edges of an index to manifests of its repository."""
    tx.execute(
        _ADD_CHILD_EDGES,
        parent_id=parent_id,
        repository_id=repository_id,
        digests=text_list(digests),
    )


def blobs_of(tx: Connection, ids: Sequence[str]) -> list[str]:
    """Return the digests of the blobs that these manifests reference, once per reference."""
    return [row[0] for row in tx.rows(_BLOBS_OF, ids=text_list(ids))]


def list_parent_digests(tx: Connection, manifest_id: str) -> list[str]:
    """Return the digests of up to 20 indexes that list a manifest, sorted."""
    return [row[0] for row in tx.rows(_PARENTS, manifest_id=manifest_id, limit=_MAX_PARENTS)]


def ids_with_parents(tx: Connection, ids: Sequence[str]) -> set[str]:
    """Return those of these manifest ids that an index lists."""
    return {row[0] for row in tx.rows(_LISTED, ids=text_list(ids))}


def describe(tx: Connection, ids: Sequence[str]) -> dict[str, Description]:
    """Map these manifest ids to the manifests' types and subjects."""
    rows = tx.rows(_DESCRIBE, ids=text_list(ids))
    return {manifest_id: Description(*columns) for manifest_id, *columns in rows}


def remove_manifests(tx: Connection, ids: Sequence[str]) -> None:
    """Delete manifests with their edges and tags; the caller removes their bodies."""
    tx.execute(_REMOVE, ids=text_list(ids))


def remove_body(tx: Connection, account_id: str, digest: str) -> None:
    """Delete a manifest's body unless a manifest or a tombstone of the account needs it."""
    # Lock first: a statement does not see manifests committed while it waits for the row.
    if tx.row(_LOCK_UNUSED_BODY, account_id=account_id, digest=digest) is not None:
        tx.execute(_REMOVE_BODY, account_id=account_id, digest=digest)


def add_to_tag_count(tx: Connection, manifest_id: str, change: int) -> int:
    """Add `change` to the number of tags of a manifest; return the new number."""
    return count(tx, _TAGGED, manifest_id=manifest_id, change=change)


def list_referrers(
    tx: Connection,
    repository_id: str,
    subjects: Sequence[str],
    artifact_type: str,
    after: str,
    limit: int,
) -> list[Referrer]:
    """Return up to `limit` manifests whose subject is one of `subjects`, oldest first.

    Only manifests with ids after `after` are returned. An empty `artifact_type` means any.
    """
    found = [
        Referrer(*row)
        for subject in subjects
        for row in tx.rows(
            _REFERRERS,
            repository_id=repository_id,
            subject=subject,
            artifact_type=artifact_type,
            after=after,
            limit=limit,
        )
    ]
    return sorted(found)[:limit]


def annotations_of(tx: Connection, repository_id: str, ids: Sequence[str]) -> dict[str, str]:
    """Map manifest ids to the manifests' annotations, as JSON.

    Annotations may be as long as the manifest's body, so limit the number of ids.
    """
    return dict(tx.rows(_ANNOTATIONS, repository_id=repository_id, ids=text_list(ids)))


def record_last_pulls(tx: Connection, pulls: Iterable[tuple[str, int]]) -> None:
    """Set when manifests were last pulled, unless a later time is stored.

    `pulls` are pairs of a manifest id and a time to the minute, in microseconds since the epoch.
    """
    for manifest_id, minute in pulls:
        tx.execute(_PULLED, manifest_id=manifest_id, minute=minute)

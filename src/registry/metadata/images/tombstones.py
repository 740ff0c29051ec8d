"""Tombstones: deleted images that can be restored.

A tombstone references the image's objects and the manifest's body by foreign keys, so the collector
cannot delete what a restore needs. Reads of live images do not look at tombstones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from sqlalchemy import and_, bindparam, func, select, text, tuple_

from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import ONE, ZERO, columns_of, count, given, insert_rows, json_text, value
from cloudcore.db.statement import Statement, listed, paged, text_list
from registry.metadata.control_tables import (
    deleted_manifest_blobs,
    deleted_manifest_children,
    deleted_manifests,
)
from registry.metadata.repositories.repository import lock_repositories
from registry.metadata.tables import (
    blob_objects,
    manifest_blobs,
    manifest_children,
    manifests,
    repositories,
    repository_blobs,
)
from registry.metadata.tags.deleted import SoftDeletion, deletion_of, remove_detached

_d = deleted_manifests.c
_m = manifests.c
_b = deleted_manifest_blobs.c
_l = repository_blobs.c
_LAST: Final = 2**62
"""Sorts after every moment, in microseconds."""
_SAME: Final = tuple(column.name for column in _m if column.name in _d)
"""The columns that a manifest and its tombstone share."""
_OF_BLOB: Final = ("digest", "object_id", "account_id", "size", "kms_key_id")
"""The columns that a link and a blob of a tombstone share."""


class Tombstone(NamedTuple):
    """A deleted image."""

    id: str
    repository_id: str
    account_id: str
    digest: str
    media_type: str
    artifact_type: str | None
    subject_digest: str | None
    is_index: bool
    size_bytes: int
    tags: Sequence[tuple[str, str]]
    """Pairs of a tag and the digest, of any algorithm, that it was pushed with."""
    pushed_at: int
    deleted_at: int
    deleted_by: str
    """The principal's CRN; empty for an unauthenticated client."""
    restorable_until: int
    deleted_by_source: str | None = None
    """A stored `SourceIdentity`, or None."""


_SOFT_DELETE: Final = Statement(
    insert_rows(
        deleted_manifests,
        select(
            *(_m[name] for name in _SAME), value("tags", _d.tags), *deletion_of(deleted_manifests)
        ).where(_m.id == bindparam("manifest_id")),
    )
)
_LINKED: Final = and_(
    _l.repository_id == manifest_blobs.c.repository_id, _l.digest == manifest_blobs.c.digest
)
_HOLD_OBJECTS: Final = Statement(
    insert_rows(
        deleted_manifest_blobs,
        select(manifest_blobs.c.manifest_id, *(_l[name] for name in _OF_BLOB))
        .join(repository_blobs, _LINKED)
        .where(manifest_blobs.c.manifest_id.in_(listed("ids"))),
    )
)
_OBJECTS_TO_HOLD: Final = Statement(
    select(_l.object_id)
    .select_from(manifest_blobs)
    .join(repository_blobs, _LINKED)
    .where(manifest_blobs.c.manifest_id.in_(listed("ids")))
    .distinct()
)
_KEEP_CHILDREN: Final = Statement(
    insert_rows(
        deleted_manifest_children,
        select(
            manifest_children.c.parent_id.label("manifest_id"),
            manifest_children.c.child_digest,
            manifest_children.c.child_id.is_(None).label("is_missing"),
        ).where(manifest_children.c.parent_id.in_(listed("ids"))),
    )
)


_COLUMNS: Final = columns_of(deleted_manifests, Tombstone._fields)
_FIND: Final = Statement(_COLUMNS.where(given(_d.repository_id, _d.digest)))
_IS_RESTORABLE: Final = _d.restorable_until > bindparam("now")
_LIST: Final = paged(
    _COLUMNS.where(
        given(_d.repository_id),
        _IS_RESTORABLE,
        tuple_(_d.deleted_at, _d.id)
        < tuple_(value("deleted_at", _d.deleted_at), value("id", _d.id)),
    ).order_by(_d.deleted_at.desc(), _d.id.desc())
)
_COUNT: Final = Statement(
    select(
        repositories.c.deleted_image_count
        - select(func.count())
        .select_from(deleted_manifests)
        .where(_d.repository_id == repositories.c.id, _d.restorable_until <= bindparam("now"))
        .scalar_subquery()
    ).where(repositories.c.id == bindparam("repository_id"))
)
_CHILDREN: Final = Statement(
    select(deleted_manifest_children.c.child_digest)
    .where(given(deleted_manifest_children.c.manifest_id), ~deleted_manifest_children.c.is_missing)
    .order_by(deleted_manifest_children.c.child_digest)
)
_BLOBS: Final = Statement(select(_b.digest).where(given(_b.manifest_id)).order_by(_b.digest))
_OBJECTS: Final = Statement(select(_b.object_id).where(given(_b.manifest_id)))
_UNCONDEMN_OBJECTS: Final = Statement(
    blob_objects.update()
    .where(
        blob_objects.c.id.in_(select(_b.object_id).where(given(_b.manifest_id))),
        blob_objects.c.state == text("'condemned'"),
    )
    .values(state=text("'live'"), condemned_at=text("NULL"))
)
_RELINK: Final = Statement(
    insert_rows(
        repository_blobs,
        select(
            _d.repository_id,
            *(_b[name] for name in _OF_BLOB),
            ZERO.label("manifest_refs"),
            value("now", _l.touched_at).label("touched_at"),
        )
        .join(deleted_manifests, _d.id == _b.manifest_id)
        .where(given(_b.manifest_id))
        .order_by(_b.digest),
    ).on_conflict_do_update(
        index_elements=["repository_id", "digest"], set_={"touched_at": bindparam("now")}
    )
)
_UNDELETE: Final = Statement(
    insert_rows(
        manifests,
        select(
            *(_d[name] for name in _SAME), value("now", _m.restored_at).label("restored_at")
        ).where(_d.id == bindparam("manifest_id")),
    )
)
_REMOVE: Final = Statement(deleted_manifests.delete().where(_d.id == bindparam("manifest_id")))
_UNCOUNT: Final = Statement(
    repositories.update()
    .where(repositories.c.id == bindparam("repository"))
    .values(deleted_image_count=repositories.c.deleted_image_count - ONE)
)
_SAME_DIGESTS: Final = (given(_d.repository_id), _d.digest.in_(listed("digests")))
_OLDER: Final = Statement(select(_d.id).where(*_SAME_DIGESTS))
_REMOVE_OLDER: Final = Statement(deleted_manifests.delete().where(*_SAME_DIGESTS))
_IS_EXPIRED: Final = _d.restorable_until <= bindparam("now")
_REPOSITORIES_OF_EXPIRED: Final = paged(
    select(_d.repository_id).where(_IS_EXPIRED).order_by(_d.restorable_until)
)
_EXPIRED: Final = paged(_COLUMNS.where(_IS_EXPIRED, _d.repository_id.in_(listed("repositories"))))
_OF_REPOSITORY: Final = paged(_COLUMNS.where(given(_d.repository_id)))


def soft_delete(
    tx: Connection, tags: Mapping[str, Sequence[tuple[str, str]]], deletion: SoftDeletion
) -> None:
    """Insert tombstones of manifests; `tags` maps manifest ids to (tag, pushed digest) pairs.

    The caller has locked the repository and, because a tombstone copies the links' KMS keys, the
    objects. It deletes the manifests afterwards.
    """
    for manifest_id, pairs in tags.items():
        document = json_text(pairs)
        tx.execute(_SOFT_DELETE, manifest_id=manifest_id, tags=document, **deletion._asdict())
    ids = text_list(list(tags))
    tx.execute(_HOLD_OBJECTS, ids=ids)
    tx.execute(_KEEP_CHILDREN, ids=ids)


def objects_to_hold(tx: Connection, manifest_ids: Sequence[str]) -> set[str]:
    """Return the ids of the objects that tombstones of these manifests would reference."""
    return {row[0] for row in tx.rows(_OBJECTS_TO_HOLD, ids=text_list(manifest_ids))}


def find_tombstone(tx: Connection, repository_id: str, digest: str) -> Tombstone | None:
    """Return the tombstone of the image with this sha256, or None."""
    row = tx.row(_FIND, repository_id=repository_id, digest=digest)
    return _tombstone(row) if row else None


def list_tombstones(
    tx: Connection, repository_id: str, now: int, before: tuple[int, str] | None, limit: int
) -> list[Tombstone]:
    """Return up to `limit` restorable images of a repository, the last deleted first.

    `before` is the deletion time and id of the previous page's last item; None for the first page.
    """
    deleted_at, tombstone_id = before or (_LAST, "")
    rows = tx.rows(
        _LIST,
        repository_id=repository_id,
        now=now,
        deleted_at=deleted_at,
        id=tombstone_id,
        limit=limit,
    )
    return [_tombstone(row) for row in rows]


def count_tombstones(tx: Connection, repository_id: str, now: int) -> int:
    """Return the number of restorable images of a repository."""
    return count(tx, _COUNT, repository_id=repository_id, now=now)


def children_of(tx: Connection, tombstone_id: str) -> list[str]:
    """Return the digests of a deleted index's children, except those that were missing."""
    return [row[0] for row in tx.rows(_CHILDREN, manifest_id=tombstone_id)]


def undelete(tx: Connection, tombstone: Tombstone, now: int) -> list[str]:
    """Insert the manifest again, and links to its blobs; return the digests of the blobs.

    If the repository has linked a blob meanwhile, that link stays. The caller has locked the
    objects. Afterwards it adds the manifest's edges and tags, updates counters, removes the
    tombstone, and condemns objects of the tombstone that nothing references any more.
    """
    tx.execute(_UNCONDEMN_OBJECTS, manifest_id=tombstone.id)
    tx.execute(_RELINK, manifest_id=tombstone.id, now=now)
    tx.execute(_UNDELETE, manifest_id=tombstone.id, now=now)
    return [row[0] for row in tx.rows(_BLOBS, manifest_id=tombstone.id)]


def objects_of(tx: Connection, tombstone_id: str) -> list[str]:
    """Return the ids of the objects that a tombstone references."""
    return [row[0] for row in tx.rows(_OBJECTS, manifest_id=tombstone_id)]


def remove_tombstone(tx: Connection, tombstone_id: str) -> None:
    """Remove the tombstone of a restored image; the caller updates the repository's counter."""
    tx.execute(_REMOVE, manifest_id=tombstone_id)


def forget_tombstone(tx: Connection, tombstone: Tombstone) -> None:
    """Remove an expired tombstone and its image's deleted tags.

    The repository's counter of deleted images is decremented. The caller holds the repository's
    lock, and removes the manifest's body.
    """
    remove_tombstone(tx, tombstone.id)
    tx.execute(_UNCOUNT, repository=tombstone.repository_id)
    remove_detached(tx, tombstone.repository_id, tombstone.digest)


def find_older(tx: Connection, repository_id: str, digests: Sequence[str]) -> list[str]:
    """Return the ids of existing tombstones of images with these digests."""
    rows = tx.rows(_OLDER, repository_id=repository_id, digests=text_list(digests))
    return [row[0] for row in rows]


def remove_older(tx: Connection, repository_id: str, digests: Sequence[str]) -> None:
    """Remove existing tombstones of images with these digests, so that each has at most one.

    The caller updates the repository's counter, and condemns objects that nothing references.
    """
    tx.execute(_REMOVE_OLDER, repository_id=repository_id, digests=text_list(digests))


def lock_expired_tombstones(tx: Connection, now: int, limit: int) -> list[Tombstone]:
    """Lock the repositories of expired tombstones; return up to `limit` of the tombstones."""
    found = {row[0] for row in tx.rows(_REPOSITORIES_OF_EXPIRED, now=now, limit=limit)}
    lock_repositories(tx, found)
    rows = tx.rows(_EXPIRED, now=now, repositories=text_list(sorted(found)), limit=limit)
    return [_tombstone(row) for row in rows]


def tombstones_of(tx: Connection, repository_id: str, limit: int) -> list[Tombstone]:
    """Return up to `limit` tombstones of a repository."""
    rows = tx.rows(_OF_REPOSITORY, repository_id=repository_id, limit=limit)
    return [_tombstone(row) for row in rows]


def _tombstone(row: Row) -> Tombstone:
    pairs = msgspec.json.decode(row[9], type=list[tuple[str, str]])
    return Tombstone(*row)._replace(is_index=bool(row[7]), tags=pairs)

"""Blobs and children that cached manifests list but that their repository does not have yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import bindparam, func, literal_column, select, union_all
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.rows import count, find_all, given, insert_new, total, value
from cloudcore.db.statement import Statement, listed, text_list
from registry.metadata.control_tables import deleted_manifest_children
from registry.metadata.pull_through.tables import deleted_missing_blobs, missing_blobs
from registry.metadata.tables import manifest_blobs, manifest_children, manifests, repository_blobs

_x = missing_blobs.c
_c = manifest_children.c
_m = manifests.c


class MissingBlob(NamedTuple):
    """A blob that a manifest lists and its repository lacks; digest and size are as listed."""

    digest: str
    size: int


class IncompleteManifest(NamedTuple):
    """A manifest that lists a missing blob, and the blob's digest and size."""

    manifest_id: str
    digest: str
    size: int


_ADD: Final = Statement(
    insert_new(missing_blobs, ("manifest_id", "digest", "repository_id", "size"))
)
_SIZE: Final = Statement(select(func.max(_x.size)).where(given(_x.repository_id, _x.digest)))
_OF_DIGESTS: Final = (given(_x.repository_id), _x.digest.in_(listed("digests")))
_INCOMPLETE: Final = Statement(select(_x.manifest_id, _x.digest, _x.size).where(*_OF_DIGESTS))
_FOUND: Final = Statement(missing_blobs.delete().where(*_OF_DIGESTS))
_ADD_EDGES: Final = Statement(
    insert(manifest_blobs)
    .from_select(
        ["manifest_id", "digest", "repository_id"],
        select(_m.id, value("digest", manifest_blobs.c.digest), _m.repository_id).where(
            given(_m.repository_id), _m.id.in_(listed("ids"))
        ),
    )
    .on_conflict_do_nothing()
)
_REFER: Final = Statement(
    repository_blobs.update()
    .where(given(repository_blobs.c.repository_id, repository_blobs.c.digest))
    .values(manifest_refs=repository_blobs.c.manifest_refs + bindparam("count"))
)
_GROW: Final = Statement(
    manifests.update()
    .where(_m.id == bindparam("manifest_id"))
    .values(size_bytes=_m.size_bytes + bindparam("bytes"))
)
_SET_SIZE: Final = Statement(
    manifests.update()
    .where(_m.id == bindparam("manifest_id"))
    .values(size_bytes=bindparam("bytes"))
)
_ADD_CHILD: Final = Statement(
    insert(manifest_children)
    .values(
        parent_id=bindparam("parent_id"),
        child_digest=bindparam("digest"),
        repository_id=bindparam("repository_id"),
        child_id=literal_column("NULL"),
    )
    .on_conflict_do_nothing()
)
_FOUND_CHILD: Final = Statement(
    manifest_children.update()
    .where(given(_c.repository_id), _c.child_digest.in_(listed("digests")), _c.child_id.is_(None))
    .values(child_id=bindparam("manifest_id"))
)
_PARENTS: Final = Statement(
    select(_c.parent_id).where(_c.child_id.in_(listed("ids"))).distinct().order_by(_c.parent_id)
)
_CHILDREN: Final = Statement(
    select(_c.child_id).where(given(_c.parent_id), _c.child_id.is_not(None))
)
_tree = (
    select(_c.child_id.label("id"))
    .where(given(_c.parent_id), _c.child_id.is_not(None))
    .cte("tree", recursive=True)
)
_tree = _tree.union(
    select(_c.child_id).join(_tree, _c.parent_id == _tree.c.id).where(_c.child_id.is_not(None))
)
_listed_under = union_all(
    select(_x.digest, _x.size).where(_x.manifest_id == bindparam("parent_id")),
    select(_x.digest, _x.size).where(_x.manifest_id.in_(select(_tree.c.id))),
).subquery("listed_under")
_missing_under = (
    select(_listed_under.c.digest, func.max(_listed_under.c.size).label("size"))
    .group_by(_listed_under.c.digest)
    .subquery("missing_under")
)
_MISSING_UNDER: Final = Statement(select(total(_missing_under.c.size)))
_NAMES_UNDER: Final = Statement(select(_listed_under.c.digest).distinct())
_KEEP: Final = Statement(
    deleted_missing_blobs.insert().from_select(
        ["manifest_id", "digest", "size"],
        select(_x.manifest_id, _x.digest, _x.size).where(_x.manifest_id.in_(listed("ids"))),
    )
)
_KEPT: Final = Statement(
    select(deleted_missing_blobs.c.digest, deleted_missing_blobs.c.size)
    .where(given(deleted_missing_blobs.c.manifest_id))
    .order_by(deleted_missing_blobs.c.digest)
)
_KEPT_CHILDREN: Final = Statement(
    select(deleted_manifest_children.c.child_digest)
    .where(given(deleted_manifest_children.c.manifest_id), deleted_manifest_children.c.is_missing)
    .order_by(deleted_manifest_children.c.child_digest)
)


def add_missing_blobs(
    tx: Connection, manifest_id: str, repository_id: str, missing: Sequence[MissingBlob]
) -> None:
    """Insert records of the blobs that a manifest lists and its repository does not have."""
    for each in missing:
        tx.execute(_ADD, manifest_id=manifest_id, repository_id=repository_id, **each._asdict())


def listed_size(tx: Connection, repository_id: str, digest: str) -> int | None:
    """Return the size of a missing blob as listed in a manifest of the repository.

    None if no manifest lacks the blob; the largest if manifests differ.
    """
    row = tx.row(_SIZE, repository_id=repository_id, digest=digest)
    return None if row is None or row[0] is None else int(row[0])


def take_incomplete_manifests(
    tx: Connection, repository_id: str, digests: Sequence[str]
) -> list[IncompleteManifest]:
    """Return the records of manifests that lack a blob, and delete these records.

    `digests` are all known digests of the blob. The caller holds the repository's lock.
    """
    of = {"repository_id": repository_id, "digests": text_list(digests)}
    found = find_all(tx, IncompleteManifest, _INCOMPLETE, **of)
    if found:
        tx.execute(_FOUND, **of)
    return found


def add_edges(tx: Connection, repository_id: str, digest: str, ids: Sequence[str]) -> int:
    """Insert edges from these manifests to a linked blob; return how many are new.

    The link's reference count grows by that number.
    """
    of = {"repository_id": repository_id, "digest": digest}
    added = tx.execute(_ADD_EDGES, **of, ids=text_list(ids))
    tx.execute(_REFER, **of, count=added)
    return added


def grow_image(tx: Connection, manifest_id: str, size_bytes: int) -> None:
    """Add `size_bytes`, which may be negative, to the size of an image."""
    tx.execute(_GROW, manifest_id=manifest_id, bytes=size_bytes)


def set_image_size(tx: Connection, manifest_id: str, size_bytes: int) -> None:
    """Set the size of an image."""
    tx.execute(_SET_SIZE, manifest_id=manifest_id, bytes=size_bytes)


def add_missing_children(
    tx: Connection, parent_id: str, repository_id: str, digests: Sequence[str]
) -> None:
    """Insert edges to children that the repository lacks; leave existing edges as they are."""
    for digest in digests:
        tx.execute(_ADD_CHILD, parent_id=parent_id, repository_id=repository_id, digest=digest)


def add_found_child(
    tx: Connection, repository_id: str, digests: Sequence[str], manifest_id: str
) -> bool:
    """Set a child's id in the indexes that lack the child; return False if no index does.

    `digests` are all known digests of the child. The caller holds the repository's lock.
    """
    of = {"repository_id": repository_id, "digests": text_list([str(digest) for digest in digests])}
    return tx.execute(_FOUND_CHILD, **of, manifest_id=manifest_id) > 0


def parents_of(tx: Connection, ids: Sequence[str]) -> list[str]:
    """Return the ids of the indexes that list one of these manifests."""
    return [row[0] for row in tx.rows(_PARENTS, ids=text_list(ids))]


def present_children(tx: Connection, parent_id: str) -> list[str]:
    """Return the ids of those children of an index that its repository has."""
    return [row[0] for row in tx.rows(_CHILDREN, parent_id=parent_id)]


def missing_size_under(tx: Connection, parent_id: str) -> int:
    """Return the total listed size of the distinct blobs that an index and its tree lack."""
    return count(tx, _MISSING_UNDER, parent_id=parent_id)


def missing_under(tx: Connection, manifest_id: str) -> list[str]:
    """Return the sorted digests of the blobs that a manifest and its tree lack."""
    return sorted(row[0] for row in tx.rows(_NAMES_UNDER, parent_id=manifest_id))


def keep_missing(tx: Connection, ids: Sequence[str]) -> None:
    """Copy the records of these manifests' missing blobs to their tombstones."""
    tx.execute(_KEEP, ids=text_list(ids))


def kept_missing(tx: Connection, tombstone_id: str) -> list[MissingBlob]:
    """Return the blobs that a deleted manifest lacked, as recorded in its tombstone."""
    return find_all(tx, MissingBlob, _KEPT, manifest_id=tombstone_id)


def kept_missing_children(tx: Connection, tombstone_id: str) -> list[str]:
    """Return the digests of the children that a deleted index lacked."""
    return [row[0] for row in tx.rows(_KEPT_CHILDREN, manifest_id=tombstone_id)]

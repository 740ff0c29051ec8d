"""References of cached manifests to blobs and children that are not stored here yet.

A cached manifest is stored as the upstream sent it; its blobs and children are fetched when clients
ask for them. A child of an index may also be deleted by force, and pushed again. Until then the
manifest *lacks* these blobs and children. A transaction that links a blob in a cached repository,
or stores a manifest in a repository whose indexes may lack children, also completes the references,
under the repository's lock. So the collector never sees a blob without the references of the
manifests that list it.

The size of an image includes blobs that it lacks, with the size that its manifest lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from registry.errors import ManifestInvalid
from registry.metadata.blobs import objects as blobs
from registry.metadata.images import manifests
from registry.metadata.images.relations import TreeBounds, measure_tree
from registry.metadata.pull_through import missing
from registry.metadata.repositories import repository as repositories
from registry.metadata.repositories.repository import Counts, Repository

TREE_BOUNDS: Final = TreeBounds(depth=32, edges=5_000, blobs=20_000)
"""Bounds of the tree under an index. A multi-platform image has one or two levels and some ten
children. In the transaction that stores the index, each level costs a statement and each edge a
row."""


class MeasuredTree(NamedTuple):
    """The size of an index with everything under it, and the cost of measuring it."""

    size: int
    """The size of the distinct blobs."""
    rows: int
    """The number of edges to manifests and blobs that were read."""


def measured_tree(tx: Connection, index_id: str, children: Sequence[str]) -> MeasuredTree:
    """Measure an index with everything under it.

    `children` are the ids of the manifests that the index lists; its own row need not exist yet.
    Raise `ManifestInvalid` if the tree exceeds `TREE_BOUNDS`.
    """
    found = measure_tree(tx, index_id, children, TREE_BOUNDS)
    if found.depth > TREE_BOUNDS.depth:
        raise ManifestInvalid(f"indexes may be nested at most {TREE_BOUNDS.depth} deep")
    if found.edges > TREE_BOUNDS.edges:
        raise ManifestInvalid(
            f"an index has at most {TREE_BOUNDS.edges} manifests under it, through all levels"
        )
    if found.size_bytes is None:
        raise ManifestInvalid(
            f"an index and the images under it have at most {TREE_BOUNDS.blobs} blobs"
        )
    return MeasuredTree(found.size_bytes, found.edges + found.blobs)


MOST_ROWS: Final = 100_000
"""The maximum number of rows that are read to measure indexes again in one transaction, while other
writers wait: some tenths of a second."""
INDEX_ROWS: Final = 100
"""The cost of an index, in rows, besides the rows of its tree."""
_MOST_LEVELS: Final = 32


def size_in_manifests(tx: Connection, repository_id: str, digest: str) -> int | None:
    """Return the size of a missing blob as a cached manifest lists it, or None.

    The size is only the upstream's claim.
    """
    return missing.listed_size(tx, repository_id, digest)


def complete_blob(
    tx: Connection, repository_id: str, digests: Sequence[str], size: int, now: int
) -> None:
    """Add references to a blob, which was just linked, from the manifests that lacked it.

    `digests` are all known digests of the blob, sha256 first; `size` is its real size. The caller
    holds the repository's lock.
    """
    digests = [str(each) for each in digests]
    incomplete = missing.take_incomplete_manifests(tx, repository_id, digests)
    if not incomplete:
        return
    digest = digests[0]
    was_unused = blobs.linked_blobs(tx, repository_id, [digest])[digest].manifest_refs == 0
    ids = sorted({each.manifest_id for each in incomplete})
    missing.add_edges(tx, repository_id, digest, ids)
    for each in incomplete:
        if each.size != size:
            missing.grow_image(tx, each.manifest_id, size - each.size)
    repositories.add_to_counters(tx, repository_id, now, Counts(size=size if was_unused else 0))


def complete_child(
    tx: Connection, manifest_id: str, repository_id: str, digests: list[str]
) -> None:
    """Add a manifest, which was just stored, to the indexes that lacked it; measure these again.

    `digests` are all known digests of the manifest. The caller holds the repository's lock. Raise
    `ManifestInvalid` like `measure_indexes`.
    """
    if not missing.add_found_child(tx, repository_id, digests, manifest_id):
        return
    measure_indexes(tx, missing.parents_of(tx, [manifest_id]))


def measure_indexes(tx: Connection, ids: Sequence[str]) -> None:
    """Measure these indexes, and the indexes that list them, again.

    Raise `ManifestInvalid` if the tree under one exceeds `TREE_BOUNDS`, or all together exceed
    `MOST_ROWS`.
    """
    level, rows = ids, 0
    for _ in range(_MOST_LEVELS):
        for each in level:
            rows += INDEX_ROWS + measure_index(tx, each).rows
            if rows > MOST_ROWS:
                raise ManifestInvalid("too many indexes list it, directly or through others")
        level = missing.parents_of(tx, level)
        if not level:
            return


def complete_tree(tx: Connection, repository: Repository, manifest_id: str, now: int) -> None:
    """Add references from an image, and all images under it, to blobs that have arrived meanwhile.

    A client that pushes to a repository left by a deleted rule skips existing manifests, but pushes
    their missing blobs. The caller holds the repository's lock.
    """
    names = missing.missing_under(tx, manifest_id)
    canonical = blobs.canonical_digests(tx, repository.account_id, names) if names else {}
    _complete_there(tx, repository, canonical, now)


def measure_index(tx: Connection, index_id: str) -> MeasuredTree:
    """Measure the tree of an index and set the index's size; return the measurement.

    The size adds up the distinct blobs of the index and of the images under it that the repository
    has. A blob that the cache has yet to fetch counts with the size that its manifest lists. Raise
    `ManifestInvalid` if the tree exceeds `TREE_BOUNDS`.
    """
    found = measured_tree(tx, index_id, missing.present_children(tx, index_id))
    size = found.size + missing.missing_size_under(tx, index_id)
    missing.set_image_size(tx, index_id, size)
    return found._replace(size=size)


def restore_references(
    tx: Connection, repository: Repository, tombstone_id: str, digest: str, now: int
) -> None:
    """Restore the records of what a manifest lacks, and add other manifests' references to it.

    The manifest's row and its edges are restored already, and its tombstone still exists. Blobs and
    children that it lacked, but that have arrived meanwhile, get references. Raise
    `ManifestInvalid` if the tree under an index exceeds `TREE_BOUNDS`.
    """
    lacked = missing.kept_missing(tx, tombstone_id)
    missing.add_missing_blobs(tx, tombstone_id, repository.id, lacked)
    _add_children(tx, tombstone_id, repository.id, missing.kept_missing_children(tx, tombstone_id))
    digests = [each.digest for each in lacked] + manifests.blobs_of(tx, [tombstone_id])
    names = blobs.canonical_digests(tx, repository.account_id, digests)
    _complete_there(tx, repository, names, now)
    spellings = blobs.equivalent_digests(tx, repository.account_id, digest)
    complete_child(tx, tombstone_id, repository.id, spellings)


def _complete_there(
    tx: Connection, repository: Repository, names: Mapping[str, str], now: int
) -> None:
    """Add references to those of these missing blobs that the repository has.

    `names` maps the listed digests to sha256 digests.
    """
    there = blobs.whole_blobs(tx, repository.id, sorted(set(names.values())))
    for name, canonical in names.items():
        if canonical in there:
            size = there[canonical].size
            complete_blob(tx, repository.id, list(dict.fromkeys((canonical, name))), size, now)


def _add_children(
    tx: Connection, parent_id: str, repository_id: str, digests: Sequence[str]
) -> None:
    """Add the edges from an index to children, present or missing."""
    if digests:
        manifests.add_child_edges(tx, parent_id, repository_id, digests)
        missing.add_missing_children(tx, parent_id, repository_id, digests)

"""Bound the tree under an index, and measure its images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from registry.errors import ManifestInvalid
from registry.metadata.images.relations import TreeBounds, measure_tree

TREE_BOUNDS: Final = TreeBounds(depth=32, edges=5_000, blobs=20_000)
"""Bounds of the tree under an index. A multi-platform image has one or two levels and some ten
children. In the transaction that stores the index, each level costs a statement and each edge a
row."""


class MeasuredTree(NamedTuple):
    """What an index and all under it list."""

    size: int
    """Of the distinct blobs."""
    rows: int
    """Edges to manifests and blobs: what the walk has read."""


def measured_tree(tx: Connection, index_id: str, children: Sequence[str]) -> MeasuredTree:
    """Return the size of an index and all under it.

    `children` are the ids of those that it lists; its own row need not exist yet.

    Raises:
        ManifestInvalid: the tree exceeds `TREE_BOUNDS`.

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

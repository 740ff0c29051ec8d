"""Measure the tree under an index: its depth, its manifests, and the size of their blobs.

The walk runs inside a write transaction, so it stops one beyond its bounds; the caller compares
the counts with the bounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from sqlalchemy import and_, func, literal_column, select

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement, listed, page, text_list
from registry.metadata.tables import manifest_blobs, manifest_children, repository_blobs

_b = manifest_blobs.c


class TreeBounds(NamedTuple):
    """Bounds of a walk, which ends one beyond any of them."""

    depth: int
    """An index that lists only images has depth 1."""
    edges: int
    """Edges from an index to a child, counted each time the index is listed."""
    blobs: int
    """Edges from an image, or from an index, to a blob."""


class TreeSize(NamedTuple):
    """The result of a walk; `size_bytes` is None if it passed a bound."""

    depth: int
    edges: int
    blobs: int
    size_bytes: int | None
    """Sum over the distinct blobs."""


_CHILDREN: Final = Statement(
    page(
        select(manifest_children.c.child_id).where(
            manifest_children.c.parent_id.in_(listed("ids")),
            manifest_children.c.child_id.is_not(None),
        )
    )
)
_some_blobs = page(
    select(_b.digest, _b.repository_id).where(_b.manifest_id.in_(listed("ids")))
).subquery("some_blobs")
_COUNT_BLOBS: Final = Statement(select(func.count()).select_from(_some_blobs))
_under = (
    select(repository_blobs.c.digest, repository_blobs.c.size)
    .join(
        manifest_blobs,
        and_(
            _b.repository_id == repository_blobs.c.repository_id,
            _b.digest == repository_blobs.c.digest,
        ),
    )
    .where(_b.manifest_id.in_(listed("ids")))
    .distinct()
    .subquery("under")
)
_SIZE_UNDER: Final = Statement(select(func.coalesce(func.sum(_under.c.size), literal_column("0"))))


def measure_tree(
    tx: Connection, index_id: str, children: Iterable[str], bounds: TreeBounds
) -> TreeSize:
    """Measure the tree of an index from the ids of its children, which are the first edges."""
    # Level by level: the planner does not know that the tree is small, and would join whole tables.
    # A manifest counts on each of its levels, since depth is the longest path.
    level = set(children)
    tree = {index_id}
    depth, edges = 0, len(level)
    while level and depth <= bounds.depth and edges <= bounds.edges:
        depth += 1
        tree |= level
        limit = bounds.edges - edges + 1
        rows = tx.rows(_CHILDREN, ids=text_list(sorted(level)), limit=limit)
        edges += len(rows)
        level = {row[0] for row in rows}
    if depth > bounds.depth or edges > bounds.edges:
        return TreeSize(depth, edges, 0, None)
    ids = text_list(sorted(tree))
    counted = tx.row(_COUNT_BLOBS, ids=ids, limit=bounds.blobs + 1)
    assert counted is not None
    blobs = int(counted[0])
    if blobs > bounds.blobs:
        return TreeSize(depth, edges, blobs, None)
    size = tx.row(_SIZE_UNDER, ids=ids)
    assert size is not None
    return TreeSize(depth, edges, blobs, int(size[0]))

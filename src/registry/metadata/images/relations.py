"""Relations of images: referrers, indexes that list them, pins; and the trees of indexes.

Each relation of an image is read as a bounded range of a database index. The cost of a tree depends
on its manifests and their references, not on the repository. The walk that measures a tree runs
inside a write transaction, so it stops one step after a count has exceeded its bound; the caller
compares the counts with the bounds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from sqlalchemy import and_, bindparam, func, literal_column, select

from cloudcore.db.base import Connection
from cloudcore.db.rows import (
    ONE,
    ZERO,
    columns_of,
    count,
    deletion,
    find_all,
    given,
    insert_or_change,
    total,
)
from cloudcore.db.statement import Statement, listed, page, paged, text_list, unindexed
from registry.metadata.control_tables import PIN_HOLDS, image_pins
from registry.metadata.images.manifests import HAS_SUBJECT
from registry.metadata.tables import (
    digest_aliases,
    manifest_blobs,
    manifest_children,
    manifests,
    repository_blobs,
    tags,
)

_m = manifests.c
_t = tags.c
_a = digest_aliases.c
_c = manifest_children.c

_ATTACHED: Final = paged(
    select(func.coalesce(_m.artifact_type, _m.media_type))
    .where(given(_m.repository_id), HAS_SUBJECT)
    .order_by(_m.id.desc())
)
_ALIASES: Final = Statement(
    select(_a.alias, _a.digest).where(given(_a.account_id), _a.digest.in_(listed("digests")))
)
_NAMED: Final = Statement(
    select(_t.name).where(given(_t.repository_id), _t.name.in_(listed("names")))
)
_LISTING: Final = paged(
    select(_m.digest)
    .join(manifest_children, _c.parent_id == _m.id)
    .where(given(_m.repository_id, _c.child_id))
)
_PARENTS: Final = Statement(
    select(_c.parent_id, _c.child_id).where(given(_c.repository_id), _c.child_id.in_(listed("ids")))
)
_DETACH: Final = Statement(
    manifest_children.update()
    .where(
        given(_c.repository_id), _c.child_id.in_(listed("ids")), _c.parent_id.in_(listed("parents"))
    )
    .values(child_id=literal_column("NULL"))
)
_CHILDREN: Final = paged(
    select(manifest_children.c.child_id).where(
        manifest_children.c.parent_id.in_(listed("ids")), manifest_children.c.child_id.is_not(None)
    )
)


def attached_types(
    tx: Connection, repository_id: str, account_id: str, digests: Sequence[str], most: int
) -> dict[str, list[str]]:
    """Map each image's sha256 to the sorted artifact types of its `most` newest referrers.

    Images without a referrer are left out.
    """
    aliases = tx.rows(_ALIASES, account_id=account_id, digests=text_list(digests))
    found: defaultdict[str, set[str]] = defaultdict(set)
    for subject, digest in (*zip(digests, digests, strict=True), *aliases):
        rows = tx.rows(_ATTACHED, repository_id=repository_id, subject=subject, limit=most)
        if rows:
            found[digest] |= {row[0] for row in rows}
    return {digest: sorted(types) for digest, types in found.items()}


def existing_tags(tx: Connection, repository_id: str, names: Sequence[str]) -> set[str]:
    """Return those of these names that are tags of the repository."""
    rows = tx.rows(_NAMED, repository_id=repository_id, names=text_list(names))
    return {row[0] for row in rows}


def list_some_parent_digests(
    tx: Connection, repository_id: str, image_id: str, most: int
) -> list[str]:
    """Return the sorted digests of at most `most` indexes that list an image."""
    rows = tx.rows(_LISTING, repository_id=repository_id, child_id=image_id, limit=most)
    return sorted(row[0] for row in rows)


_p = image_pins.c
_referrer = manifests.alias("referrer")
_r = _referrer.c


class TreeMember(NamedTuple):
    """A manifest in the tree of an index; the root is the index itself."""

    id: str
    digest: str
    """The sha256."""
    is_index: bool
    is_tagged: bool
    is_pinned: bool


_tree = (
    select(_m.id.label("id"))
    .where(given(_m.repository_id), _m.id == bindparam("manifest_id"))
    .cte("tree", recursive=True)
)
_tree = _tree.union(
    select(_c.child_id)
    .join(_tree, _c.parent_id == _tree.c.id)
    .where(given(_c.repository_id), _c.child_id.is_not(None))
)
_MEMBERS: Final = Statement(
    select(
        _m.id,
        _m.digest,
        _m.is_index,
        _m.tag_count > ZERO,
        select(ONE).where(given(_p.repository_id), _p.manifest_id == _m.id, PIN_HOLDS).exists(),
    ).where(given(_m.repository_id), _m.id.in_(select(_tree.c.id)))
)
_in_repository = (given(_m.repository_id), _m.id.in_(listed("ids")), given(_r.repository_id))
_REFERRERS: Final = Statement(
    select(_r.id, _m.id)
    .select_from(manifests)
    .join(_referrer, _r.subject_digest == unindexed(_m.digest))
    .where(*_in_repository)
)
# A subject may be given as an alias: a digest of another algorithm than sha256.
_REFERRERS_BY_ALIAS: Final = Statement(
    select(_r.id, _m.id)
    .select_from(manifests)
    .join(digest_aliases, (_a.account_id == _m.account_id) & (_a.digest == _m.digest))
    .join(_referrer, _r.subject_digest == unindexed(_a.alias))
    .where(*_in_repository)
)


def members_of(tx: Connection, repository_id: str, manifest_id: str, now: int) -> list[TreeMember]:
    """Return a manifest and all its descendants, unordered."""
    rows = tx.rows(_MEMBERS, repository_id=repository_id, manifest_id=manifest_id, now=now)
    return [TreeMember(row[0], row[1], *map(bool, row[2:])) for row in rows]


def parent_edges(tx: Connection, repository_id: str, ids: Sequence[str]) -> list[tuple[str, str]]:
    """Return (index id, manifest id) pairs: which indexes list the manifests `ids`."""
    return list(tx.rows(_PARENTS, repository_id=repository_id, ids=text_list(ids)))


def detach_children(
    tx: Connection, repository_id: str, ids: Sequence[str], parents: Sequence[str]
) -> None:
    """Mark the manifests `ids`, which will be deleted, as missing in the indexes `parents`."""
    tx.execute(_DETACH, repository_id=repository_id, ids=text_list(ids), parents=text_list(parents))


def referrers_of(tx: Connection, repository_id: str, ids: Sequence[str]) -> list[tuple[str, str]]:
    """Return (referrer id, subject id) pairs for the subjects `ids`."""
    of = {"repository_id": repository_id, "ids": text_list(ids)}
    return [*tx.rows(_REFERRERS, **of), *tx.rows(_REFERRERS_BY_ALIAS, **of)]


_b = manifest_blobs.c


class TreeBounds(NamedTuple):
    """Bounds of a walk, which ends one step after it has exceeded any of them."""

    depth: int
    """The maximum depth; an index that lists only images has depth 1."""
    edges: int
    """The maximum number of edges from indexes to children. The edges of an index count once for
    each level on which the index is listed."""
    blobs: int
    """The maximum number of edges from images and indexes to blobs."""


class TreeSize(NamedTuple):
    """The counts of a walk; `size_bytes` is None if the walk exceeded a bound."""

    depth: int
    edges: int
    blobs: int
    size_bytes: int | None
    """The sum of the sizes of the distinct blobs."""


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
_SIZE_UNDER: Final = Statement(select(total(_under.c.size)))


def measure_tree(
    tx: Connection, index_id: str, children: Iterable[str], bounds: TreeBounds
) -> TreeSize:
    """Measure the tree of an index; `children` are the ids of the manifests that it lists.

    The walk stops once a count exceeds its bound.
    """
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
    blobs = count(tx, _COUNT_BLOBS, ids=ids, limit=bounds.blobs + 1)
    if blobs > bounds.blobs:
        return TreeSize(depth, edges, blobs, None)
    return TreeSize(depth, edges, blobs, count(tx, _SIZE_UNDER, ids=ids))


class Pin(NamedTuple):
    """A pin of an image."""

    manifest_id: str
    name: str
    repository_id: str
    expires_at: int | None
    """None if the pin never expires."""
    created_by: str
    """The principal's CRN."""
    created_at: int
    created_by_source: str | None = None
    """A stored `SourceIdentity`, or None."""


_of_image = given(_p.repository_id, _p.manifest_id)
_LIST: Final = Statement(
    columns_of(image_pins, Pin._fields).where(_of_image, PIN_HOLDS).order_by(_p.name)
)
_PUT: Final = Statement(
    insert_or_change(
        image_pins,
        Pin._fields,
        changed=("expires_at", "created_by", "created_by_source", "created_at"),
    )
)
_REMOVE: Final = Statement(image_pins.delete().where(_of_image, given(_p.name)))
forget_expired: Final = deletion(_p.expires_at, _p.expires_at.is_not(None))  # for the index
"""Delete expired pins."""


def list_unexpired_pins(
    tx: Connection, repository_id: str, manifest_id: str, now: int
) -> list[Pin]:
    """Return the unexpired pins of an image, sorted by name; there are only a few."""
    return find_all(tx, Pin, _LIST, repository_id=repository_id, manifest_id=manifest_id, now=now)


def upsert_pin(tx: Connection, pin: Pin) -> None:
    """Insert a pin, or replace the image's pin of the same name."""
    tx.execute(_PUT, **pin._asdict())


def remove_pin(tx: Connection, repository_id: str, manifest_id: str, name: str) -> None:
    """Remove a pin, expired or not."""
    tx.execute(_REMOVE, repository_id=repository_id, manifest_id=manifest_id, name=name)

"""The manifests under an index, with the tags, pins, indexes and referrers that need each.

The cost grows with the number of these manifests and their references, not with the repository.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import bindparam, literal_column, or_, select

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement, listed, text_list, unindexed
from registry.metadata.control_tables import image_pins
from registry.metadata.tables import digest_aliases, manifest_children, manifests

_m = manifests.c
_c = manifest_children.c
_p = image_pins.c
_a = digest_aliases.c
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
    .where(_m.repository_id == bindparam("repository_id"), _m.id == bindparam("manifest_id"))
    .cte("tree", recursive=True)
)
_tree = _tree.union(
    select(_c.child_id)
    .join(_tree, _c.parent_id == _tree.c.id)
    .where(_c.repository_id == bindparam("repository_id"), _c.child_id.is_not(None))
)
_MEMBERS: Final = Statement(
    select(
        _m.id,
        _m.digest,
        _m.is_index,
        _m.tag_count > literal_column("0"),
        select(literal_column("1"))
        .where(
            _p.repository_id == bindparam("repository_id"),
            _p.manifest_id == _m.id,
            or_(_p.expires_at.is_(None), _p.expires_at > bindparam("now")),
        )
        .exists(),
    ).where(_m.repository_id == bindparam("repository_id"), _m.id.in_(select(_tree.c.id)))
)
_PARENTS: Final = Statement(
    select(_c.parent_id, _c.child_id).where(
        _c.repository_id == bindparam("repository_id"), _c.child_id.in_(listed("ids"))
    )
)
_DETACH: Final = Statement(
    manifest_children.update()
    .where(
        _c.repository_id == bindparam("repository_id"),
        _c.child_id.in_(listed("ids")),
        _c.parent_id.in_(listed("parents")),
    )
    .values(child_id=literal_column("NULL"))
)
_in_repository = (
    _m.repository_id == bindparam("repository_id"),
    _m.id.in_(listed("ids")),
    _r.repository_id == bindparam("repository_id"),
)
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
    """Return pairs of an index and the one of the manifests `ids` that it lists, by id."""
    rows = tx.rows(_PARENTS, repository_id=repository_id, ids=text_list(ids))
    return [(row[0], row[1]) for row in rows]


def detach_children(
    tx: Connection, repository_id: str, ids: Sequence[str], parents: Sequence[str]
) -> None:
    """Let the indexes `parents` lack the manifests `ids`, which are about to be deleted."""
    tx.execute(_DETACH, repository_id=repository_id, ids=text_list(ids), parents=text_list(parents))


def referrers_of(tx: Connection, repository_id: str, ids: Sequence[str]) -> list[tuple[str, str]]:
    """Return pairs of a referrer and its subject, which is one of the manifests `ids`."""
    return [
        (row[0], row[1])
        for statement in (_REFERRERS, _REFERRERS_BY_ALIAS)
        for row in tx.rows(statement, repository_id=repository_id, ids=text_list(ids))
    ]

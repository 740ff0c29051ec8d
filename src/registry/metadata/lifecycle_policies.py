"""Lifecycle policies, at most one per repository, and the columns that their rules evaluate.

Images are read in pages or by id. Their rows are plain tuples, since a repository may have a
hundred thousand images.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import and_, bindparam, case, exists, func, select, text
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import ONE, ZERO, bound, count, find_one, given, total
from cloudcore.db.statement import Statement, listed, paged, text_list, unindexed
from registry.metadata.control_tables import PIN_HOLDS, image_pins, lifecycle_policies, tag_events
from registry.metadata.repositories.policies import first_revision, keep_revision
from registry.metadata.tables import (
    digest_aliases,
    manifest_blobs,
    manifest_children,
    manifests,
    repository_blobs,
    tags,
)

_p = lifecycle_policies.c


class StoredLifecyclePolicy(NamedTuple):
    """A repository's policy as it was accepted."""

    document: str
    revision: int
    next_run_at: int
    updated_at: int


_new = insert(lifecycle_policies).values(
    **bound(("repository_id", "document", "next_run_at")),
    revision=first_revision("lifecycle"),
    updated_at=bindparam("now"),
)
_PUT: Final = Statement(
    _new.on_conflict_do_update(
        index_elements=["repository_id"],
        set_={
            "document": _new.excluded.document,
            "revision": _p.revision + text("1"),
            # A stored time after that of a new policy was written under a wrong clock: replace it.
            "next_run_at": case(
                (_p.next_run_at > _new.excluded.next_run_at, _new.excluded.next_run_at),
                else_=_p.next_run_at,
            ),
            "updated_at": _new.excluded.updated_at,
        },
    )
)
_FIND: Final = Statement(
    select(_p.document, _p.revision, _p.next_run_at, _p.updated_at).where(given(_p.repository_id))
)
_KEEP_REVISION: Final = keep_revision("lifecycle", lifecycle_policies)
_REMOVE: Final = Statement(lifecycle_policies.delete().where(given(_p.repository_id)))
_DUE: Final = paged(
    select(_p.repository_id).where(_p.next_run_at <= bindparam("now")).order_by(_p.next_run_at)
)
_POSTPONE: Final = Statement(
    lifecycle_policies.update()
    .where(_p.repository_id == bindparam("repository"), _p.next_run_at <= bindparam("now"))
    .values(next_run_at=bindparam("next_run"))
)


def store_lifecycle_policy(
    tx: Connection, repository_id: str, document: str, now: int, next_run_at: int
) -> StoredLifecyclePolicy:
    """Insert or replace a repository's policy, and return it.

    The next run stays as in the replaced policy, unless `next_run_at` is earlier.
    """
    tx.execute(
        _PUT, repository_id=repository_id, document=document, next_run_at=next_run_at, now=now
    )
    stored = find_lifecycle_policy(tx, repository_id)
    assert stored is not None
    return stored


def find_lifecycle_policy(tx: Connection, repository_id: str) -> StoredLifecyclePolicy | None:
    """Return a repository's policy, or None."""
    return find_one(tx, StoredLifecyclePolicy, _FIND, repository_id=repository_id)


def remove_lifecycle_policy(tx: Connection, repository_id: str) -> bool:
    """Remove a repository's policy; return False if it had none. Lock the repository first."""
    tx.execute(_KEEP_REVISION, repository_id=repository_id)
    return tx.execute(_REMOVE, repository_id=repository_id) == 1


def list_due(tx: Connection, now: int, limit: int) -> list[str]:
    """Return the ids of up to `limit` repositories whose policies are due."""
    return [row[0] for row in tx.rows(_DUE, now=now, limit=limit)]


def postpone(tx: Connection, repository_id: str, now: int, next_run_at: int) -> bool:
    """Set the next run of a due policy; return False if the policy is deleted or no longer due."""
    return tx.execute(_POSTPONE, repository=repository_id, now=now, next_run=next_run_at) == 1


_m = manifests.c
_c = manifest_children.c
_t = tags.c
_e = tag_events.c
_b = manifest_blobs.c
_l = repository_blobs.c
_subject = manifests.alias("subject")
_elsewhere = repository_blobs.alias("elsewhere")


class ImageColumns(NamedTuple):
    """The columns of an image's row; times are in microseconds since the epoch."""

    id: str
    is_index: bool
    tag_count: int
    pushed_at: int
    restored_at: int | None
    """Time of the image's last restoration, or None."""
    last_pulled_at: int | None
    untagged_at: int | None
    """Time at which an untagged image lost its last tag, or None if no event shows one."""
    subject_id: str | None
    """Id of the image's subject, or None if the repository has none."""
    subject_digest: str | None
    is_pinned: bool


_untagged_at = (
    select(func.max(_e.occurred_at))
    .where(
        _e.repository_id == _m.repository_id,
        _e.previous_digest == _m.digest,
        _e.previous_digest.is_not(None),  # so that the partial index applies
    )
    .correlate(manifests)
    .scalar_subquery()
)
# A subject may be given as an alias: a digest of another algorithm than sha256.
_subject_digest = func.coalesce(
    select(digest_aliases.c.digest)
    .where(
        digest_aliases.c.account_id == _m.account_id, digest_aliases.c.alias == _m.subject_digest
    )
    .correlate(manifests)
    .scalar_subquery(),
    _m.subject_digest,
)
_subject_id = (
    select(_subject.c.id)
    .where(_subject.c.repository_id == _m.repository_id, _subject.c.digest == _subject_digest)
    .correlate(manifests)
    .scalar_subquery()
)
_is_pinned = exists().where(image_pins.c.manifest_id == _m.id, PIN_HOLDS)


_COLUMNS: Final = select(
    _m.id,
    _m.is_index,
    _m.tag_count,
    _m.pushed_at,
    _m.restored_at,
    _m.last_pulled_at,
    case((_m.tag_count == ZERO, _untagged_at)),
    case((_m.subject_digest.is_not(None), _subject_id)),
    case((_m.subject_digest.is_not(None), _subject_digest)),
    _is_pinned,
).where(given(_m.repository_id))
_PAGE: Final = paged(_COLUMNS.where(_m.id > bindparam("after")).order_by(_m.id))
_SOME: Final = Statement(_COLUMNS.where(_m.id.in_(listed("ids"))))
_TAG_PAGE: Final = paged(
    select(_t.name, _t.manifest_id, _t.updated_at)
    .where(given(_t.repository_id), _t.name > bindparam("after"))
    .order_by(_t.name)
)
_TAGS_OF_SOME: Final = Statement(
    select(_t.name, _t.manifest_id, _t.updated_at).where(
        unindexed(_t.repository_id) == bindparam("repository_id"), _t.manifest_id.in_(listed("ids"))
    )
)
_CHILDREN: Final = Statement(
    select(_c.parent_id, _c.child_id).where(
        given(_c.repository_id), _c.child_id.is_not(None), _c.parent_id.in_(listed("ids"))
    )
)
_DIGESTS: Final = Statement(
    select(_m.id, _m.digest).where(given(_m.repository_id), _m.id.in_(listed("ids")))
)
_IDS: Final = Statement(
    select(_m.digest, _m.id).where(given(_m.repository_id), _m.digest.in_(listed("digests")))
)
_is_shared = exists().where(
    _elsewhere.c.object_id == _l.object_id,
    _elsewhere.c.account_id == _l.account_id,
    _elsewhere.c.repository_id != _l.repository_id,
)


_SOLE_BYTES: Final = Statement(
    select(total(_l.size))
    .select_from(manifest_blobs)
    .join(repository_blobs, and_(_l.repository_id == _b.repository_id, _l.digest == _b.digest))
    .where(given(_b.manifest_id), _l.manifest_refs == ONE, ~_is_shared)
)


_links = select(_l.digest, _l.size, _l.manifest_refs, _is_shared).where(given(_l.repository_id))
_LINKS: Final = Statement(_links.where(_l.digest.in_(listed("digests"))))
_LINK_PAGE: Final = paged(_links.where(_l.digest > bindparam("after")).order_by(_l.digest))


def page_of_images(
    tx: Connection, repository_id: str, after: str, limit: int, now: int
) -> Sequence[Row]:
    """Return up to `limit` images after an id, as `ImageColumns` (`is_pinned` at `now`)."""
    return tx.rows(_PAGE, repository_id=repository_id, after=after, limit=limit, now=now)


def images_with_ids(
    tx: Connection, repository_id: str, ids: Sequence[str], now: int
) -> Sequence[Row]:
    """Return the images with these ids, as `ImageColumns` (`is_pinned` at `now`)."""
    return tx.rows(_SOME, repository_id=repository_id, ids=text_list(ids), now=now)


def page_of_tags(tx: Connection, repository_id: str, after: str, limit: int) -> Sequence[Row]:
    """Return up to `limit` tags after the name `after`: name, image id, time of the last move."""
    return tx.rows(_TAG_PAGE, repository_id=repository_id, after=after, limit=limit)


def tags_of_images(tx: Connection, repository_id: str, ids: Sequence[str]) -> Sequence[Row]:
    """Return the tags of these images: name, image id, time of the last move."""
    return tx.rows(_TAGS_OF_SOME, repository_id=repository_id, ids=text_list(ids))


def children_of_indexes(tx: Connection, repository_id: str, ids: Sequence[str]) -> Sequence[Row]:
    """Return (parent id, child id) edges from these indexes to their children."""
    return tx.rows(_CHILDREN, repository_id=repository_id, ids=text_list(ids))


def digests_of(tx: Connection, repository_id: str, ids: Sequence[str]) -> dict[str, str]:
    """Map image ids to digests."""
    return dict(tx.rows(_DIGESTS, repository_id=repository_id, ids=text_list(ids)))


def ids_of(tx: Connection, repository_id: str, digests: Sequence[str]) -> dict[str, str]:
    """Map each digest to its image's id; digests without an image are left out."""
    return dict(tx.rows(_IDS, repository_id=repository_id, digests=text_list(digests)))


def sole_bytes(tx: Connection, manifest_id: str) -> int:
    """Return the size of an image's blobs that no other image of its repository references.

    Blobs that another repository links are left out too.
    """
    return count(tx, _SOLE_BYTES, manifest_id=manifest_id)


def links_of(tx: Connection, repository_id: str, digests: Sequence[str]) -> Sequence[Row]:
    """Return the repository's links of these blobs.

    The columns are digest, size, reference count, and True if another repository links the object.
    """
    return tx.rows(_LINKS, repository_id=repository_id, digests=text_list(digests))


def page_of_links(tx: Connection, repository_id: str, after: str, limit: int) -> Sequence[Row]:
    """Return up to `limit` links after the digest `after`, with the columns of `links_of`."""
    return tx.rows(_LINK_PAGE, repository_id=repository_id, after=after, limit=limit)

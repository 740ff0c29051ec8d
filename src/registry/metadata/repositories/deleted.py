"""Deleted repositories: list, lock and restore them, and later purge them in batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Select, and_, bindparam, exists, func, or_, select, text

from cloudcore.db.base import Connection
from cloudcore.db.rows import columns_of, count, find_all, find_one, given
from cloudcore.db.statement import Statement, listed, paged, text_list
from registry.metadata.control_tables import deleted_manifests, tag_events
from registry.metadata.images.manifests import ManifestRow
from registry.metadata.quotas import check_restored
from registry.metadata.repositories.folders import add_to_folders
from registry.metadata.repositories.repository import Repository
from registry.metadata.tables import (
    manifest_children,
    manifests,
    repositories,
    repository_blobs,
    uploads,
)
from registry.quotas import IMAGES, REPOSITORIES, TAGS

_r = repositories.c
_live = repositories.alias("live")
_LAST: Final = "g"
"""Sorts after every id."""
# Only deleted ones have a `restorable_until`; no other column, so that an index has it all.
_COUNT: Final = Statement(
    select(func.count())
    .select_from(repositories)
    .where(given(_r.account_id), _r.restorable_until > bindparam("now"))
)
_RESTORE: Final = Statement(
    repositories.update()
    .where(
        _r.id == bindparam("repository_id"),
        ~exists().where(
            _live.c.account_id == _r.account_id,
            _live.c.name == _r.name,
            _live.c.deleted_at.is_(None),
        ),
    )
    .values(
        deleted_at=text("NULL"),
        deleted_by=text("NULL"),
        deleted_by_source=text("NULL"),
        restorable_until=text("NULL"),
        updated_at=bindparam("now"),
    )
)
_LIST_PURGED: Final = paged(
    select(_r.id, _r.deleted_at, _r.restorable_until)
    .where(
        _r.restorable_until.is_not(None),  # so that the partial index applies
        _r.restorable_until <= bindparam("now"),
        or_(
            _r.restorable_until > bindparam("until"),
            and_(_r.restorable_until == bindparam("until"), _r.id > bindparam("after")),
        ),
    )
    .order_by(_r.restorable_until, _r.id)
)
_LOCK_PURGED: Final = Statement(
    select(_r.id, _r.account_id, _r.name)
    .where(given(_r.id), _r.restorable_until <= bindparam("now"))
    .with_for_update(key_share=True)
)


class DeletedRepository(NamedTuple):
    """A restorable repository; its content is still there."""

    id: str
    account_id: str
    name: str
    image_count: int
    tag_count: int
    size_bytes: int
    created_at: int
    deleted_at: int
    deleted_by: str | None
    restorable_until: int
    deleted_by_source: str | None = None
    """A stored `SourceIdentity`."""


def _of_account(query: Select[Any]) -> Select[Any]:
    return query.where(
        given(_r.account_id),
        _r.deleted_at.is_not(None),  # so that the partial index applies
        _r.restorable_until > bindparam("now"),
    )


_COLUMNS: Final = columns_of(repositories, DeletedRepository._fields)
_LIST: Final = paged(
    _of_account(_COLUMNS).where(_r.id < bindparam("before")).order_by(_r.id.desc())
)
_LOCK: Final = Statement(_of_account(_COLUMNS).where(given(_r.id)).with_for_update(key_share=True))
_FIND: Final = Statement(_of_account(_COLUMNS).where(given(_r.id)))


def list_deleted_repositories(
    tx: Connection, account_id: str, now: int, before: str | None, limit: int
) -> list[DeletedRepository]:
    """Return up to `limit` restorable repositories with ids below `before`, newest id first."""
    return find_all(
        tx,
        DeletedRepository,
        _LIST,
        account_id=account_id,
        now=now,
        before=before or _LAST,
        limit=limit,
    )


def count_deleted_repositories(tx: Connection, account_id: str, now: int) -> int:
    """Return the number of restorable repositories of an account."""
    return count(tx, _COUNT, account_id=account_id, now=now)


def find_deleted_repository(
    tx: Connection, account_id: str, repository_id: str, now: int
) -> DeletedRepository | None:
    """Return a restorable repository of an account, or None."""
    return find_one(tx, DeletedRepository, _FIND, account_id=account_id, id=repository_id, now=now)


def lock_deleted_repository(
    tx: Connection, account_id: str, repository_id: str, now: int
) -> DeletedRepository | None:
    """Return a restorable repository, or None; lock it so that its purge waits."""
    return find_one(tx, DeletedRepository, _LOCK, account_id=account_id, id=repository_id, now=now)


def undelete_repository(tx: Connection, found: DeletedRepository, now: int) -> bool:
    """Undelete a repository; return False if another repository has taken its name.

    Raise `QuotaExceeded` if the account would exceed its quota of repositories, images or tags.
    """
    if not tx.execute(_RESTORE, repository_id=found.id, now=now):
        return False
    for quota, added in ((REPOSITORIES, 1), (IMAGES, found.image_count), (TAGS, found.tag_count)):
        check_restored(tx, found.account_id, quota, added, now)
    add_to_folders(tx, found.account_id, found.name)
    return True


_m = manifests.c
_l = repository_blobs.c


class PurgeableRepository(NamedTuple):
    """A deleted repository that is no longer restorable, and not purged yet."""

    id: str
    deleted_at: int
    restorable_until: int


class PurgedBlob(NamedTuple):
    """A link to delete: a blob's digest and its object."""

    digest: str
    object_id: str


_ROOTS: Final = paged(
    columns_of(manifests, ManifestRow._fields)
    .where(given(_m.repository_id), ~exists().where(manifest_children.c.child_id == _m.id))
    .order_by(_m.id)
)
_LINKS: Final = paged(select(_l.digest, _l.object_id).where(given(_l.repository_id)))
_UNLINK: Final = Statement(
    repository_blobs.delete().where(
        given(_l.repository_id),
        _l.digest.in_(listed("digests")),
        _l.object_id.in_(listed("object_ids")),
    )
)
_REMOVE: Final = Statement(
    repositories.delete().where(
        given(_r.id),
        _r.deleted_at.is_not(None),
        ~exists().where(manifests.c.repository_id == _r.id),
        ~exists().where(_l.repository_id == _r.id),
        ~exists().where(uploads.c.repository_id == _r.id),
        ~exists().where(deleted_manifests.c.repository_id == _r.id),
        ~exists().where(tag_events.c.repository_id == _r.id),
    )
)


def list_purgeable(
    tx: Connection, now: int, after: tuple[int, str], limit: int
) -> list[PurgeableRepository]:
    """Return up to `limit` purgeable repositories, ordered by `restorable_until` and id.

    `after` is the `restorable_until` and the id after which the page starts.
    """
    page = {"until": after[0], "after": after[1], "limit": limit}
    return find_all(tx, PurgeableRepository, _LIST_PURGED, now=now, **page)


def lock_purgeable(tx: Connection, repository_id: str, now: int) -> Repository | None:
    """Return a purgeable repository, or None; lock it against restore and other purges."""
    row = tx.row(_LOCK_PURGED, id=repository_id, now=now)
    if row is None:
        return None
    return Repository(
        row[0],
        row[1],
        row[2],
        is_immutable=False,
        immutable_tag_exclusions=(),
        has_event_rules=False,
    )


def root_manifests(tx: Connection, repository_id: str, limit: int) -> list[ManifestRow]:
    """Return up to `limit` manifests of a repository that no index lists."""
    return find_all(tx, ManifestRow, _ROOTS, repository_id=repository_id, limit=limit)


def list_links(tx: Connection, repository_id: str, limit: int) -> list[PurgedBlob]:
    """Return up to `limit` links of a repository."""
    return find_all(tx, PurgedBlob, _LINKS, repository_id=repository_id, limit=limit)


def unlink_blobs(tx: Connection, repository_id: str, links: Sequence[PurgedBlob]) -> None:
    """Remove links of a repository that has no manifests.

    A link that was moved meanwhile to an object that none of `links` names stays, since that object
    is not locked.
    """
    tx.execute(
        _UNLINK,
        repository_id=repository_id,
        digests=text_list([link.digest for link in links]),
        object_ids=text_list([link.object_id for link in links]),
    )


def remove_repository(tx: Connection, repository_id: str) -> bool:
    """Remove a deleted repository's row; return False if it still has content."""
    return tx.execute(_REMOVE, id=repository_id) == 1

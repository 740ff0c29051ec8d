"""Purge deleted repositories, batch by batch, when they are no longer restorable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import and_, bindparam, exists, or_, select

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement, listed, page, text_list
from registry.metadata.control_tables import deleted_manifests, tag_events
from registry.metadata.images.manifests import ManifestRow
from registry.metadata.repositories.live import Repository
from registry.metadata.tables import (
    manifest_children,
    manifests,
    repositories,
    repository_blobs,
    uploads,
)

_r = repositories.c
_m = manifests.c
_l = repository_blobs.c


class PurgeableRepository(NamedTuple):
    """A deleted repository that is no longer restorable, and not purged yet."""

    id: str
    deleted_at: int
    restorable_until: int


class PurgedBlob(NamedTuple):
    """A link of a repository: a blob's digest and its object."""

    digest: str
    object_id: str


_LIST: Final = Statement(
    page(
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
)
_LOCK: Final = Statement(
    select(_r.id, _r.account_id, _r.name)
    .where(_r.id == bindparam("id"), _r.restorable_until <= bindparam("now"))
    .with_for_update(key_share=True)
)
_ROOTS: Final = Statement(
    page(
        select(*(_m[name] for name in ManifestRow._fields))
        .where(
            _m.repository_id == bindparam("repository_id"),
            ~exists().where(manifest_children.c.child_id == _m.id),
        )
        .order_by(_m.id)
    )
)
_LINKS: Final = Statement(
    page(select(_l.digest, _l.object_id).where(_l.repository_id == bindparam("repository_id")))
)
_UNLINK: Final = Statement(
    repository_blobs.delete().where(
        _l.repository_id == bindparam("repository_id"),
        _l.digest.in_(listed("digests")),
        _l.object_id.in_(listed("object_ids")),
    )
)
_REMOVE: Final = Statement(
    repositories.delete().where(
        _r.id == bindparam("id"),
        _r.deleted_at.is_not(None),
        ~exists().where(manifests.c.repository_id == _r.id),
        ~exists().where(_l.repository_id == _r.id),
        ~exists().where(uploads.c.repository_id == _r.id),
        ~exists().where(deleted_manifests.c.repository_id == _r.id),
        ~exists().where(tag_events.c.repository_id == _r.id),
    )
)


def list_deleted(
    tx: Connection, now: int, after: tuple[int, str], limit: int
) -> list[PurgeableRepository]:
    """Return up to `limit` purgeable repositories, ordered by `restorable_until` and id.

    They come after `after`: the `restorable_until` and id of a repository.
    """
    until, last = after
    return [
        PurgeableRepository(*row)
        for row in tx.rows(_LIST, now=now, until=until, after=last, limit=limit)
    ]


def lock_deleted(tx: Connection, repository_id: str, now: int) -> Repository | None:
    """Return a purgeable repository, or None; lock it against restore and other purges."""
    row = tx.row(_LOCK, id=repository_id, now=now)
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
    """Return up to `limit` manifests that no index lists."""
    rows = tx.rows(_ROOTS, repository_id=repository_id, limit=limit)
    return [ManifestRow(*row) for row in rows]


def list_links(tx: Connection, repository_id: str, limit: int) -> list[PurgedBlob]:
    """Return up to `limit` links of a repository."""
    rows = tx.rows(_LINKS, repository_id=repository_id, limit=limit)
    return [PurgedBlob(*row) for row in rows]


def unlink_blobs(tx: Connection, repository_id: str, links: Sequence[PurgedBlob]) -> None:
    """Remove links of a repository that has no manifests.

    Leave those that name another object than all of `links` do by now: it is not locked.
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

"""Restorable deleted tags: at most one row per name.

A row is removed when it expires, and when a tag with its name is pushed or restored. While its
image is deleted too, the row is detached (`has_image` is false): it is not listed, and expires and
is removed no later than the image's tombstone. `repositories.deleted_tag_count` is the number of
rows whose `has_image` is true, so neither the list nor the count reads images.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Label, Table, bindparam, case, func, select, text

from cloudcore.db.base import Connection
from cloudcore.db.rows import columns_of, count, find_all, find_one, given, insert_rows, value
from cloudcore.db.statement import Statement, listed, paged, text_list
from registry.metadata.control_tables import deleted_tags, tag_events
from registry.metadata.repositories.repository import lock_repositories
from registry.metadata.tables import manifests, repositories, tags

_d = deleted_tags.c
_e = tag_events.c
_LAST: Final = 2**62
"""Sorts after every event number."""


class DeletedTag(NamedTuple):
    """A deleted tag."""

    sequence: int
    """The number of the event of its deletion."""
    name: str
    digest: str
    """The sha256 of the image that the tag pointed to."""
    pushed_digest: str
    """The digest, of any algorithm, that the tag was pushed with."""
    deleted_at: int
    deleted_by: str
    """The principal's CRN; empty for an unauthenticated client."""
    restorable_until: int
    deleted_by_source: str | None = None
    """A stored `SourceIdentity`."""


class SoftDeletion(NamedTuple):
    """A deletion that can be undone: its principal, its time, and until when it can be undone."""

    principal: str
    """The principal's CRN; empty for an unauthenticated client."""
    source: str | None
    """A stored `SourceIdentity`, or None."""
    now: int
    restorable_until: int


def deletion_of(table: Table) -> Sequence[Label[Any]]:
    """Build the columns of a table that an insertion sets from a `SoftDeletion`."""
    c = table.c
    return [
        value("now", c.deleted_at).label("deleted_at"),
        value("principal", c.deleted_by).label("deleted_by"),
        value("source", c.deleted_by_source).label("deleted_by_source"),
        value("restorable_until", c.restorable_until).label("restorable_until"),
    ]


_HAS_IMAGE: Final = text("deleted_tags.has_image")
_IS_DETACHED: Final = text("NOT deleted_tags.has_image")
_OF_REPOSITORY: Final = given(_d.repository_id)
_OF_IMAGE: Final = (_OF_REPOSITORY, given(_d.digest))
_ADD: Final = Statement(
    insert_rows(
        deleted_tags,
        select(
            tags.c.repository_id,
            tags.c.name,
            select(func.max(_e.sequence))
            .where(_e.repository_id == tags.c.repository_id, _e.tag == tags.c.name)
            .scalar_subquery()
            .label("sequence"),
            manifests.c.digest,
            tags.c.pushed_digest,
            tags.c.created_at,
            value("has_image", _d.has_image),
            *deletion_of(deleted_tags),
        )
        .join(manifests, manifests.c.id == tags.c.manifest_id)
        .where(given(tags.c.repository_id), tags.c.name.in_(listed("names"))),
    )
)
_REMOVE: Final = Statement(
    deleted_tags.delete().where(_OF_REPOSITORY, given(_d.name)).returning(_d.has_image)
)
_OF_IMAGES: Final = (_OF_REPOSITORY, _d.digest.in_(listed("digests")))
_REMOVE_OF_IMAGES: Final = Statement(deleted_tags.delete().where(*_OF_IMAGES))
_REMOVE_DETACHED: Final = Statement(deleted_tags.delete().where(*_OF_IMAGE, _IS_DETACHED))
_DETACH: Final = Statement(
    deleted_tags.update()
    .where(*_OF_IMAGES)
    .values(
        has_image=text("false"),
        restorable_until=case(
            (_d.restorable_until < bindparam("until"), _d.restorable_until),
            else_=value("until", _d.restorable_until),
        ),
    )
)
_ATTACH: Final = Statement(
    deleted_tags.update().where(*_OF_IMAGE, _IS_DETACHED).values(has_image=text("true"))
)
_COLUMNS: Final = columns_of(deleted_tags, DeletedTag._fields)
_CREATED_AT: Final = Statement(select(_d.created_at).where(*_OF_IMAGE, given(_d.name)))
_IS_RESTORABLE: Final = _d.restorable_until > bindparam("now")
_FIND: Final = Statement(_COLUMNS.where(_OF_REPOSITORY, given(_d.name), _IS_RESTORABLE))
_LIST: Final = paged(
    _COLUMNS.where(
        _OF_REPOSITORY, _HAS_IMAGE, _IS_RESTORABLE, _d.sequence < bindparam("before")
    ).order_by(_d.sequence.desc())
)
_COUNT: Final = Statement(
    select(
        repositories.c.deleted_tag_count
        - select(func.count())
        .select_from(deleted_tags)
        .where(
            _d.repository_id == repositories.c.id,
            _HAS_IMAGE,
            _d.restorable_until <= bindparam("now"),
        )
        .scalar_subquery()
    ).where(repositories.c.id == bindparam("repository_id"))
)
_EXPIRED: Final = paged(
    select(_d.repository_id, _d.name)
    .where(_d.restorable_until <= bindparam("now"))
    .order_by(_d.restorable_until)
)
_FORGET: Final = Statement(
    deleted_tags.delete()
    .where(_OF_REPOSITORY, _d.name.in_(listed("names")), _d.restorable_until <= bindparam("now"))
    .returning(_d.has_image)
)
_UNCOUNT: Final = Statement(
    repositories.update()
    .where(repositories.c.id == bindparam("repository_id"))
    .values(deleted_tag_count=repositories.c.deleted_tag_count - bindparam("forgotten"))
)


def add_deleted_tags(
    tx: Connection,
    repository_id: str,
    names: Sequence[str],
    deletion: SoftDeletion,
    *,
    has_image: bool,
) -> None:
    """Insert deleted tags from live ones.

    Call this after recording the deletions as events, and before removing the tags.
    """
    of = {"repository_id": repository_id, "names": text_list(names), "has_image": has_image}
    tx.execute(_ADD, **of, **deletion._asdict())


def remove_deleted_tag(tx: Connection, repository_id: str, name: str) -> int:
    """Remove the deleted tag with this name, if any.

    Return 1 if the repository's count of deleted tags included the tag, else 0.
    """
    row = tx.row(_REMOVE, repository_id=repository_id, name=name)
    return int(row is not None and bool(row[0]))


def detach_deleted_tags(
    tx: Connection, repository_id: str, digests: Sequence[str], until: int | None
) -> int:
    """Detach the deleted tags of images that are being deleted; return how many were restorable.

    The images and their tags are restorable until `until` at the latest. None means that the images
    are not restorable; then the deleted tags are removed.
    """
    of = {"repository_id": repository_id, "digests": text_list(digests)}
    if until is None:
        return tx.execute(_REMOVE_OF_IMAGES, **of)
    return tx.execute(_DETACH, **of, until=until)


def attach_deleted_tags(tx: Connection, repository_id: str, digest: str) -> int:
    """List the deleted tags of a restored image as restorable again; return their number."""
    return tx.execute(_ATTACH, repository_id=repository_id, digest=digest)


def remove_detached(tx: Connection, repository_id: str, digest: str) -> None:
    """Remove the detached tags of an image that can no longer be restored."""
    tx.execute(_REMOVE_DETACHED, repository_id=repository_id, digest=digest)


def find_deleted_tag(tx: Connection, repository_id: str, name: str, now: int) -> DeletedTag | None:
    """Return a restorable deleted tag, whether or not its image exists, or None."""
    return find_one(tx, DeletedTag, _FIND, repository_id=repository_id, name=name, now=now)


def created_at_of(tx: Connection, repository_id: str, name: str, digest: str) -> int | None:
    """Return when the deleted tag of this name and image was created, or None."""
    row = tx.row(_CREATED_AT, repository_id=repository_id, name=name, digest=digest)
    return row[0] if row else None


def list_deleted_tags(
    tx: Connection, repository_id: str, now: int, before: int | None, limit: int
) -> list[DeletedTag]:
    """Return up to `limit` restorable tags whose image exists, the last deleted first.

    `before` is the event number of the previous page's last tag; None for the first page.
    """
    return find_all(
        tx,
        DeletedTag,
        _LIST,
        repository_id=repository_id,
        now=now,
        before=_LAST if before is None else before,
        limit=limit,
    )


def count_deleted_tags(tx: Connection, repository_id: str, now: int) -> int:
    """Return the number of tags that `list_deleted_tags` lists on all its pages."""
    return count(tx, _COUNT, repository_id=repository_id, now=now)


def forget_deleted_tags(tx: Connection, now: int, limit: int) -> int:
    """Remove up to `limit` expired deleted tags; return how many were found."""
    expired: defaultdict[str, list[str]] = defaultdict(list)
    for repository_id, name in tx.rows(_EXPIRED, now=now, limit=limit):
        expired[repository_id].append(name)
    lock_repositories(tx, expired)
    for repository_id, names in expired.items():
        gone = tx.rows(_FORGET, repository_id=repository_id, names=text_list(names), now=now)
        forgotten = sum(bool(row[0]) for row in gone)
        if forgotten:
            tx.execute(_UNCOUNT, repository_id=repository_id, forgotten=forgotten)
    return sum(map(len, expired.values()))

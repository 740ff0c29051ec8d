"""Stored bytes by use (shared, exclusive to an image, restorable, unreferenced), and by account."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from cloudcore.db.base import Connection, Database, Row
from cloudcore.db.rows import ONE, ZERO, find_all, given, total, value
from cloudcore.db.statement import Statement, listed, page, paged, text_list
from registry.metadata.control_tables import deleted_manifest_blobs, deleted_manifests
from registry.metadata.tables import (
    blob_objects,
    manifest_blobs,
    manifests,
    repositories,
    repository_blobs,
)

_o = blob_objects.c
_l = repository_blobs.c
_m = manifests.c
_r = repositories.c
_e = manifest_blobs.c
_b = deleted_manifest_blobs.c
_d = deleted_manifests.c
_other = repository_blobs.alias("other")
_home = repositories.alias("home")


class LinkSums(NamedTuple):
    """Sums over one slice of a repository's links."""

    rows: int
    last: str | None
    """The digest after which the next slice begins; None if this slice is empty."""
    logical_bytes: int
    """The size if each manifest had its own copies of its blobs."""
    size_bytes: int
    exclusive_bytes: int
    """Size of the blobs that no other repository of the account references."""


class MeasuredObject(NamedTuple):
    """A blob's bytes, stored once for an account."""

    id: str
    digest: str
    size: int
    stored_size: int
    """Bytes on disk."""


class ObjectUse(NamedTuple):
    """How many manifests of a live repository reference an object."""

    object_id: str
    repository_id: str
    size: int
    manifests: int
    """The number of these manifests."""


class SharedSums(NamedTuple):
    """Sums over the distinct blobs of some manifests of one repository."""

    size_bytes: int
    exclusive_bytes: int
    """Size of the blobs that no other live manifest references."""
    restorable_bytes: int
    """The part of `exclusive_bytes` that a restorable image or repository references too."""


class NamedRepository(NamedTuple):
    """A live repository of an account."""

    id: str
    name: str
    image_count: int


def _needed_by(object_id: Any, *where: Any) -> sa.Exists:  # noqa: ANN401 - SQLAlchemy expressions
    """Build the condition that a manifest needs the object, in a repository that meets `where`."""
    return (
        sa.select(ONE)
        .select_from(_other)
        .join(_home, _home.c.id == _other.c.repository_id)
        .where(
            given(_other.c.account_id),
            _other.c.object_id == object_id,
            _other.c.manifest_refs > ZERO,
            *where,
        )
        # Without an offset PostgreSQL may look up all objects instead of those of the slice.
        .limit(ONE)
        .offset(ZERO)
        .exists()
    )


def _restorable(object_id: Any) -> Any:  # noqa: ANN401
    return sa.or_(
        sa.select(ONE)
        .select_from(deleted_manifest_blobs)
        .join(deleted_manifests, _d.id == _b.manifest_id)
        .where(
            given(_d.account_id),
            _b.object_id == object_id,
            _d.restorable_until > sa.bindparam("now"),
        )
        .limit(ONE)
        .offset(ZERO)
        .exists(),
        _needed_by(object_id, _home.c.restorable_until > sa.bindparam("now")),
    )


def _live(object_id: Any, *where: Any) -> sa.Exists:  # noqa: ANN401
    return _needed_by(object_id, _home.c.deleted_at.is_(None), *where)


def _sum(amount: Any, *where: Any) -> Any:  # noqa: ANN401
    """Build the sum of `amount` over the rows that meet `where`; 0 if there are none."""
    counted = sa.case((sa.and_(*where), amount), else_=ZERO) if where else amount
    return total(counted)


_links = page(
    sa.select(
        _l.digest,
        _l.size,
        _l.manifest_refs,
        sa.case(
            (_l.manifest_refs == ZERO, ZERO),
            (_live(_l.object_id, _other.c.repository_id != _l.repository_id), ZERO),
            else_=ONE,
        ).label("is_exclusive"),
    )
    .where(given(_l.repository_id), _l.digest > sa.bindparam("after"))
    .order_by(_l.digest)
).subquery("links")
_LINKS: Final = Statement(
    sa.select(
        sa.func.count(),
        sa.func.max(_links.c.digest),
        _sum(_links.c.size * _links.c.manifest_refs),
        _sum(_links.c.size, _links.c.manifest_refs > ZERO),
        _sum(_links.c.size, _links.c.is_exclusive == ONE),
    ).select_from(_links)
)
_OBJECTS: Final = paged(
    sa.select(_o.id, _o.digest, _o.size, _o.stored_size)
    .where(
        given(_o.account_id), sa.text("blob_objects.is_current"), _o.digest > sa.bindparam("after")
    )
    .order_by(_o.digest)
)
_REPLACED_OBJECTS: Final = paged(
    sa.select(_o.id, _o.digest, _o.size, _o.stored_size)
    .where(
        given(_o.account_id), sa.text("NOT blob_objects.is_current"), _o.id > sa.bindparam("after")
    )
    .order_by(_o.id)
)
_USES: Final = Statement(
    sa.select(_l.object_id, _l.repository_id, _l.size, _l.manifest_refs)
    .join(repositories, _r.id == _l.repository_id)
    .where(
        given(_l.account_id),
        _l.object_id.in_(listed("ids")),
        _l.manifest_refs > ZERO,
        _r.deleted_at.is_(None),
    )
)
_RESTORABLE: Final = Statement(
    sa.select(_o.id).where(given(_o.account_id), _o.id.in_(listed("ids")), _restorable(_o.id))
)
_REPOSITORIES: Final = paged(
    sa.select(_r.id, _r.name, _r.image_count)
    .where(given(_r.account_id), _r.deleted_at.is_(None), _r.name > sa.bindparam("after"))
    .order_by(_r.name)
)
_TOMBSTONES: Final = paged(
    sa.select(_d.deleted_at, _d.id)
    .where(
        given(_d.repository_id),
        _d.restorable_until > sa.bindparam("now"),
        sa.tuple_(_d.deleted_at, _d.id)
        > sa.tuple_(value("deleted_at", _d.deleted_at), value("after", _d.id)),
    )
    .order_by(_d.deleted_at, _d.id)
)
_DELETED_ONLY: Final = Statement(
    sa.select(_b.object_id, _b.size).where(
        given(_b.account_id), _b.manifest_id.in_(listed("ids")), ~_live(_b.object_id)
    )
)
_needed = (
    sa.select(_l.object_id, _l.size, _l.manifest_refs, sa.func.count().label("inside"))
    .select_from(manifests)
    .join(manifest_blobs, _e.manifest_id == _m.id)
    .join(repository_blobs, sa.and_(_l.repository_id == _e.repository_id, _l.digest == _e.digest))
    # Filter only the manifests: else SQLite begins with all blobs of the repository.
    .where(given(_m.repository_id), _m.id.in_(listed("ids")))
    .group_by(_l.object_id, _l.size, _l.manifest_refs)
    .subquery("needed")
)
_classified = sa.select(
    _needed.c.size,
    sa.case(
        (_needed.c.manifest_refs > _needed.c.inside, sa.literal_column("'shared'")),
        (
            _live(_needed.c.object_id, _other.c.repository_id != sa.bindparam("repository_id")),
            sa.literal_column("'shared'"),
        ),
        (_restorable(_needed.c.object_id), sa.literal_column("'restorable'")),
        else_=sa.literal_column("'exclusive'"),
    ).label("usage"),
).subquery("classified")
_SHARED: Final = Statement(
    sa.select(
        _sum(_classified.c.size),
        _sum(_classified.c.size, _classified.c.usage != sa.literal_column("'shared'")),
        _sum(_classified.c.size, _classified.c.usage == sa.literal_column("'restorable'")),
    ).select_from(_classified)
)


def sum_links(
    tx: Connection, account_id: str, repository_id: str, after: str, limit: int
) -> LinkSums:
    """Add up the sizes of up to `limit` links of a repository, after the digest `after`."""
    row = tx.row(
        _LINKS, account_id=account_id, repository_id=repository_id, after=after, limit=limit
    )
    assert row is not None
    return LinkSums(row[0], row[1], *map(int, row[2:]))


def list_objects(tx: Connection, account_id: str, after: str, limit: int) -> list[MeasuredObject]:
    """Return up to `limit` current objects of an account after the digest `after`, sorted."""
    return find_all(tx, MeasuredObject, _OBJECTS, account_id=account_id, after=after, limit=limit)


def list_replaced_objects(
    tx: Connection, account_id: str, after: str, limit: int
) -> list[MeasuredObject]:
    """Return up to `limit` objects after the id `after` that are not current for their digest.

    They were either shredded, and have no bytes, or retired because another object with the same
    digest, under other KMS keys, replaced them.
    """
    return find_all(
        tx, MeasuredObject, _REPLACED_OBJECTS, account_id=account_id, after=after, limit=limit
    )


def uses_of(tx: Connection, account_id: str, object_ids: Sequence[str]) -> list[ObjectUse]:
    """Return the live repositories whose manifests reference these objects, and how many do."""
    # No join with the list of ids: PostgreSQL would read all links of all accounts.
    return find_all(tx, ObjectUse, _USES, account_id=account_id, ids=text_list(object_ids))


def restorable_of(tx: Connection, account_id: str, object_ids: Sequence[str], now: int) -> set[str]:
    """Return those of these object ids that a restorable image or repository references."""
    rows = tx.rows(_RESTORABLE, account_id=account_id, ids=text_list(object_ids), now=now)
    return {row[0] for row in rows}


def list_repositories(
    tx: Connection, account_id: str, after: str, limit: int
) -> list[NamedRepository]:
    """Return up to `limit` live repositories after the name `after`, sorted by name."""
    return find_all(
        tx, NamedRepository, _REPOSITORIES, account_id=account_id, after=after, limit=limit
    )


def list_tombstone_ids(
    tx: Connection, repository_id: str, now: int, after: tuple[int, str], limit: int
) -> list[tuple[int, str]]:
    """Return (deletion time, id) of up to `limit` restorable images after `after`, sorted."""
    deleted_at, last = after
    position = {"deleted_at": deleted_at, "after": last}
    return list(tx.rows(_TOMBSTONES, repository_id=repository_id, now=now, **position, limit=limit))


def deleted_objects(tx: Connection, account_id: str, tombstones: Sequence[str]) -> dict[str, int]:
    """Map object ids to sizes, for objects that these tombstones and no live image reference."""
    return dict(tx.rows(_DELETED_ONLY, account_id=account_id, ids=text_list(tombstones)))


def sum_blobs_of(
    tx: Connection, account_id: str, repository_id: str, manifest_ids: Sequence[str], now: int
) -> SharedSums:
    """Add up the sizes of the distinct blobs of these manifests; an index itself has none."""
    row = tx.row(
        _SHARED,
        account_id=account_id,
        repository_id=repository_id,
        ids=text_list(manifest_ids),
        now=now,
    )
    assert row is not None
    return SharedSums(*map(int, row))


_SLICE: Final = 5000
"""The number of objects in one read, which takes some milliseconds."""

_slice = page(
    sa.select(_o.id, _o.account_id, _o.size)
    .where(
        _o.id > sa.bindparam("after"),
        sa.text("blob_objects.is_current AND blob_objects.state = 'live'"),
    )
    .order_by(_o.id)
).subquery("slice")
_SUMS: Final = Statement(
    sa.select(
        _slice.c.account_id, sa.func.sum(_slice.c.size), sa.func.max(_slice.c.id), sa.func.count()
    ).group_by(_slice.c.account_id)
)


async def stored_by_account(database: Database) -> Mapping[str, int]:
    """Map account ids to the size of their blobs as pushed, each counted once.

    So compression and sealing do not affect bills. Condemned objects do not count. This takes about
    a second per million blobs; other requests run in between.
    """
    sums: Counter[str] = Counter()
    after, count = "", _SLICE
    while count == _SLICE:
        rows = await database.read(_sums, after)
        count = sum(row[3] for row in rows)
        for account_id, size, last, _ in rows:
            sums[account_id] += int(size)
            after = max(after, last)
        await asyncio.sleep(0)  # a read of SQLite does not yield
    return sums


def _sums(tx: Connection, after: str) -> Sequence[Row]:
    """Return (account id, bytes, last id, count) of the next objects after the id `after`."""
    return tx.rows(_SUMS, after=after, limit=_SLICE)

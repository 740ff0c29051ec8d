"""Whose bytes are whose: what is shared, what hangs on one image, what nothing needs any more.

A blob is *live* in a repository that is not deleted and in which a manifest references it; an
object is live where one of its links is. What only tombstones, or repositories that can still be
restored, refer to is *restorable*.

Whatever may be large is read in slices, each a range of an index, since one long read would hold
up everybody else (on SQLite, the whole process).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Exists,
    and_,
    bindparam,
    case,
    func,
    literal_column,
    or_,
    select,
    text,
    tuple_,
)

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement, listed, page, text_list
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

_NONE: Final[ColumnElement[int]] = literal_column("0")
_ONE: Final[ColumnElement[int]] = literal_column("1")


class LinkSums(NamedTuple):
    """What a slice of a repository's blobs adds up to."""

    rows: int
    last: str | None
    """Digest after which the next slice begins."""
    logical_bytes: int
    """What its images would take if each kept its own copies."""
    size_bytes: int
    exclusive_bytes: int
    """Of blobs that no other repository of the account needs."""


class MeasuredObject(NamedTuple):
    """A blob's bytes, stored once for an account."""

    id: str
    digest: str
    size: int
    stored_size: int
    """On disk."""


class Use(NamedTuple):
    """That manifests of a live repository reference an object."""

    object_id: str
    repository_id: str
    size: int
    manifests: int
    """How many do."""


class SharedSums(NamedTuple):
    """What the blobs of some manifests of one repository add up to."""

    size_bytes: int
    exclusive_bytes: int
    """Of blobs that nothing else live needs."""
    restorable_bytes: int
    """The part of that which something restorable needs too."""


class NamedRepository(NamedTuple):
    """A live repository of an account."""

    id: str
    name: str
    image_count: int


def _needed_by(object_id: Any, *where: Any) -> Exists:  # noqa: ANN401 - SQLAlchemy expressions
    """Say that a link of an object is needed by a manifest, in a repository of which `where`."""
    return (
        select(_ONE)
        .select_from(_other)
        .join(_home, _home.c.id == _other.c.repository_id)
        .where(
            _other.c.account_id == bindparam("account_id"),
            _other.c.object_id == object_id,
            _other.c.manifest_refs > _NONE,
            *where,
        )
        # Without an offset PostgreSQL may look up all objects, to answer for the few of a slice.
        .limit(_ONE)
        .offset(_NONE)
        .exists()
    )


def _restorable(object_id: Any) -> Any:  # noqa: ANN401
    return or_(
        select(_ONE)
        .select_from(deleted_manifest_blobs)
        .join(deleted_manifests, _d.id == _b.manifest_id)
        .where(
            _d.account_id == bindparam("account_id"),
            _b.object_id == object_id,
            _d.restorable_until > bindparam("now"),
        )
        .limit(_ONE)
        .offset(_NONE)
        .exists(),
        _needed_by(object_id, _home.c.restorable_until > bindparam("now")),
    )


def _live(object_id: Any, *where: Any) -> Exists:  # noqa: ANN401
    return _needed_by(object_id, _home.c.deleted_at.is_(None), *where)


def _sum(amount: Any, *where: Any) -> Any:  # noqa: ANN401
    """Return the sum over the rows of which `where`; 0 when there is none."""
    counted = case((and_(*where), amount), else_=_NONE) if where else amount
    return func.coalesce(func.sum(counted), _NONE)


_links = page(
    select(
        _l.digest,
        _l.size,
        _l.manifest_refs,
        case(
            (_l.manifest_refs == _NONE, _NONE),
            (_live(_l.object_id, _other.c.repository_id != _l.repository_id), _NONE),
            else_=_ONE,
        ).label("is_exclusive"),
    )
    .where(_l.repository_id == bindparam("repository_id"), _l.digest > bindparam("after"))
    .order_by(_l.digest)
).subquery("links")
_LINKS: Final = Statement(
    select(
        func.count(),
        func.max(_links.c.digest),
        _sum(_links.c.size * _links.c.manifest_refs),
        _sum(_links.c.size, _links.c.manifest_refs > _NONE),
        _sum(_links.c.size, _links.c.is_exclusive == _ONE),
    ).select_from(_links)
)
_OBJECTS: Final = Statement(
    page(
        select(_o.id, _o.digest, _o.size, _o.stored_size)
        .where(
            _o.account_id == bindparam("account_id"),
            text("blob_objects.is_current"),
            _o.digest > bindparam("after"),
        )
        .order_by(_o.digest)
    )
)
_USES: Final = Statement(
    select(_l.object_id, _l.repository_id, _l.size, _l.manifest_refs)
    .join(repositories, _r.id == _l.repository_id)
    .where(
        _l.account_id == bindparam("account_id"),
        _l.object_id.in_(listed("ids")),
        _l.manifest_refs > _NONE,
        _r.deleted_at.is_(None),
    )
)
_RESTORABLE: Final = Statement(
    select(_o.id).where(
        _o.account_id == bindparam("account_id"),
        _o.id.in_(listed("ids")),
        _restorable(_o.id),
    )
)
_REPOSITORIES: Final = Statement(
    page(
        select(_r.id, _r.name, _r.image_count)
        .where(
            _r.account_id == bindparam("account_id"),
            _r.deleted_at.is_(None),
            _r.name > bindparam("after"),
        )
        .order_by(_r.name)
    )
)
_TOMBSTONES: Final = Statement(
    page(
        select(_d.deleted_at, _d.id)
        .where(
            _d.repository_id == bindparam("repository_id"),
            _d.restorable_until > bindparam("now"),
            tuple_(_d.deleted_at, _d.id)
            > tuple_(
                bindparam("deleted_at", type_=_d.deleted_at.type),
                bindparam("after", type_=_d.id.type),
            ),
        )
        .order_by(_d.deleted_at, _d.id)
    )
)
_BURIED: Final = Statement(
    select(_b.object_id, _b.size).where(
        _b.account_id == bindparam("account_id"),
        _b.manifest_id.in_(listed("ids")),
        ~_live(_b.object_id),
    )
)
_needed = (
    select(_l.object_id, _l.size, _l.manifest_refs, func.count().label("inside"))
    .select_from(manifests)
    .join(manifest_blobs, _e.manifest_id == _m.id)
    .join(repository_blobs, and_(_l.repository_id == _e.repository_id, _l.digest == _e.digest))
    # Bound here alone: else SQLite begins with all the blobs of the repository.
    .where(_m.repository_id == bindparam("repository_id"), _m.id.in_(listed("ids")))
    .group_by(_l.object_id, _l.size, _l.manifest_refs)
    .subquery("needed")
)
_judged = select(
    _needed.c.size,
    case(
        (_needed.c.manifest_refs > _needed.c.inside, literal_column("'shared'")),
        (
            _live(_needed.c.object_id, _other.c.repository_id != bindparam("repository_id")),
            literal_column("'shared'"),
        ),
        (_restorable(_needed.c.object_id), literal_column("'restorable'")),
        else_=literal_column("'exclusive'"),
    ).label("standing"),
).subquery("judged")
_SHARED: Final = Statement(
    select(
        _sum(_judged.c.size),
        _sum(_judged.c.size, _judged.c.standing != literal_column("'shared'")),
        _sum(_judged.c.size, _judged.c.standing == literal_column("'restorable'")),
    ).select_from(_judged)
)


def sum_links(
    tx: Connection, account_id: str, repository_id: str, after: str, limit: int
) -> LinkSums:
    """Add up to `limit` of a repository's blobs, from the digest `after`."""
    row = tx.row(
        _LINKS, account_id=account_id, repository_id=repository_id, after=after, limit=limit
    )
    assert row is not None
    return LinkSums(row[0], row[1], *map(int, row[2:]))


def list_objects(tx: Connection, account_id: str, after: str, limit: int) -> list[MeasuredObject]:
    """Return up to `limit` objects of an account after the digest `after`, in that order."""
    rows = tx.rows(_OBJECTS, account_id=account_id, after=after, limit=limit)
    return [MeasuredObject(*row) for row in rows]


def uses_of(tx: Connection, account_id: str, object_ids: Sequence[str]) -> list[Use]:
    """Return where these objects are live."""
    # Not joined to their list: PostgreSQL would read all links of all accounts each time.
    rows = tx.rows(_USES, account_id=account_id, ids=text_list(object_ids))
    return [Use(*row) for row in rows]


def restorable_of(tx: Connection, account_id: str, object_ids: Sequence[str], now: int) -> set[str]:
    """Return those of these objects that something deleted holds while it can be restored."""
    rows = tx.rows(_RESTORABLE, account_id=account_id, ids=text_list(object_ids), now=now)
    return {row[0] for row in rows}


def list_repositories(
    tx: Connection, account_id: str, after: str, limit: int
) -> list[NamedRepository]:
    """Return up to `limit` live repositories of an account after the name `after`."""
    rows = tx.rows(_REPOSITORIES, account_id=account_id, after=after, limit=limit)
    return [NamedRepository(*row) for row in rows]


def list_tombstones(
    tx: Connection, repository_id: str, now: int, after: tuple[int, str], limit: int
) -> list[tuple[int, str]]:
    """Return when up to `limit` restorable images were deleted, with their ids, in that order."""
    deleted_at, last = after
    rows = tx.rows(
        _TOMBSTONES,
        repository_id=repository_id,
        now=now,
        deleted_at=deleted_at,
        after=last,
        limit=limit,
    )
    return [(row[0], row[1]) for row in rows]


def buried_objects(tx: Connection, account_id: str, tombstones: Sequence[str]) -> dict[str, int]:
    """Return the sizes of the objects that these tombstones hold and nothing live needs."""
    rows = tx.rows(_BURIED, account_id=account_id, ids=text_list(tombstones))
    return {row[0]: row[1] for row in rows}


def sum_blobs_of(
    tx: Connection, account_id: str, repository_id: str, manifest_ids: Sequence[str], now: int
) -> SharedSums:
    """Add up the distinct blobs of these manifests; indexes have none of their own."""
    row = tx.row(
        _SHARED,
        account_id=account_id,
        repository_id=repository_id,
        ids=text_list(manifest_ids),
        now=now,
    )
    assert row is not None
    return SharedSums(*map(int, row))

"""The last measured use of each repository, and repositories that were long unused."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, and_, bindparam, case, func, select, tuple_
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.rows import ONE, count, given, value
from cloudcore.db.statement import Statement, paged
from registry.metadata.control_tables import HOLDS_BYTES, repository_activity
from registry.metadata.repositories.details import (
    LAST_PULLED_AT,
    LAST_PUSHED_AT,
    RepositoryDetails,
    find_repository_details,
)
from registry.metadata.tables import repositories

_r = repositories.c
_u = repository_activity.c

OF_BATCH: Final = and_(_r.id >= bindparam("first"), _r.id <= bindparam("last"))
"""The repository's id is from ``:first`` to ``:last``."""
_uses = (
    select(
        _r.id,
        _r.account_id,
        _r.size_bytes,
        _r.created_at,
        func.coalesce(LAST_PUSHED_AT, _r.created_at).label("pushed_at"),
        func.coalesce(LAST_PULLED_AT, _r.created_at).label("pulled_at"),
    )
    .where(OF_BATCH, _r.deleted_at.is_(None))
    .subquery("uses")
)


def _later(one: ColumnElement[int], other: ColumnElement[int]) -> ColumnElement[int]:
    return case((one > other, one), else_=other)


_noted = insert(repository_activity).from_select(
    ["repository_id", "account_id", "used_at", "size_bytes"],
    select(
        _uses.c.id,
        _uses.c.account_id,
        _later(_uses.c.created_at, _later(_uses.c.pushed_at, _uses.c.pulled_at)),
        _uses.c.size_bytes,
    ).where(ONE == ONE),  # else SQLite reads ON as a join's
)
_NOTE: Final = Statement(
    _noted.on_conflict_do_update(
        index_elements=["repository_id"],
        set_={"used_at": _noted.excluded.used_at, "size_bytes": _noted.excluded.size_bytes},
    )
)
_FORGET: Final = Statement(
    repository_activity.delete().where(
        _u.repository_id.in_(select(_r.id).where(OF_BATCH, _r.deleted_at.is_not(None)))
    )
)
_IS_STALE: Final = and_(given(_u.account_id), _u.used_at < bindparam("before"), HOLDS_BYTES)
_LIST: Final = paged(
    select(_u.repository_id, _u.used_at)
    .where(
        given(_u.account_id),
        tuple_(_u.used_at, _u.repository_id)
        > tuple_(value("after", _u.used_at), value("after_id", _u.repository_id)),
        _u.used_at < bindparam("before"),
        HOLDS_BYTES,
    )
    .order_by(_u.used_at, _u.repository_id)
)
_COUNT: Final = Statement(select(func.count()).select_from(repository_activity).where(_IS_STALE))


class LastUse(NamedTuple):
    """When a repository was last pushed, pulled or created, as last measured."""

    used_at: int
    repository_id: str


def record_uses(tx: Connection, first: str, last: str) -> None:
    """Write the last use of each live repository with an id from `first` to `last`.

    Delete the last uses of deleted repositories in this range.
    """
    tx.execute(_NOTE, first=first, last=last)
    tx.execute(_FORGET, first=first, last=last)


def list_last_uses(
    tx: Connection, account_id: str, before: int, after: LastUse | None, limit: int
) -> list[LastUse]:
    """Return up to `limit` repositories that have bytes and were not used since `before`.

    The longest unused come first. `after` is the last item of the previous page.
    """
    place = after or LastUse(-1, "")
    rows = tx.rows(
        _LIST,
        account_id=account_id,
        before=before,
        after=place.used_at,
        after_id=place.repository_id,
        limit=limit,
    )
    return [LastUse(int(row[1]), row[0]) for row in rows]


def count_stale(tx: Connection, account_id: str, before: int) -> int:
    """Return the number of repositories that have bytes and were not used since `before`."""
    return count(tx, _COUNT, account_id=account_id, before=before)


def find_stale(
    tx: Connection, account_id: str, repository_id: str, before: int
) -> RepositoryDetails | None:
    """Return a live repository if it has bytes and is still unused since `before`, else None."""
    found = find_repository_details(tx, account_id, repository_id)
    if found is None:
        return None
    moments = (found.created_at, found.last_pushed_at, found.last_pulled_at)
    is_used = any(each is not None and each >= before for each in moments)
    return None if is_used or not found.size_bytes else found

"""Deleted repositories that can be restored: list, find, lock and restore them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import Select, bindparam, exists, func, select, text

from cloudcore.db.base import Connection
from cloudcore.db.rows import count
from cloudcore.db.statement import Statement, page
from registry.metadata.repositories.folders import add_to_folders
from registry.metadata.tables import repositories

_r = repositories.c
_live = repositories.alias("live")
_LAST: Final = "g"
"""Sorts after every id."""


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
    """A stored `Source`."""


def _of_account(query: Select[Any]) -> Select[Any]:
    return query.where(
        _r.account_id == bindparam("account_id"),
        _r.deleted_at.is_not(None),  # so that the partial index applies
        _r.restorable_until > bindparam("now"),
    )


_COLUMNS: Final = select(*(_r[name] for name in DeletedRepository._fields))
_LIST: Final = Statement(
    page(_of_account(_COLUMNS).where(_r.id < bindparam("before")).order_by(_r.id.desc()))
)
# Only deleted ones have a `restorable_until`; no other column, so that an index has it all.
_COUNT: Final = Statement(
    select(func.count())
    .select_from(repositories)
    .where(_r.account_id == bindparam("account_id"), _r.restorable_until > bindparam("now"))
)
_LOCK: Final = Statement(
    _of_account(_COLUMNS).where(_r.id == bindparam("id")).with_for_update(key_share=True)
)
_FIND: Final = Statement(_of_account(_COLUMNS).where(_r.id == bindparam("id")))
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


def list_deleted_repositories(
    tx: Connection, account_id: str, now: int, before: str | None, limit: int
) -> list[DeletedRepository]:
    """Return up to `limit` restorable repositories with ids below `before`, newest first."""
    rows = tx.rows(_LIST, account_id=account_id, now=now, before=before or _LAST, limit=limit)
    return [DeletedRepository(*row) for row in rows]


def count_deleted_repositories(tx: Connection, account_id: str, now: int) -> int:
    """Return the number of restorable repositories of an account."""
    return count(tx, _COUNT, account_id=account_id, now=now)


def find_deleted_repository(
    tx: Connection, account_id: str, repository_id: str, now: int
) -> DeletedRepository | None:
    """Return a restorable repository of an account, or None."""
    row = tx.row(_FIND, account_id=account_id, id=repository_id, now=now)
    return DeletedRepository(*row) if row else None


def lock_deleted_repository(
    tx: Connection, account_id: str, repository_id: str, now: int
) -> DeletedRepository | None:
    """Return a restorable repository, or None; lock it so that its purge waits."""
    row = tx.row(_LOCK, account_id=account_id, id=repository_id, now=now)
    return DeletedRepository(*row) if row else None


def undelete_repository(tx: Connection, found: DeletedRepository, now: int) -> bool:
    """Undelete a repository; return False if another repository has taken its name."""
    if not tx.execute(_RESTORE, repository_id=found.id, now=now):
        return False
    add_to_folders(tx, found.account_id, found.name)
    return True

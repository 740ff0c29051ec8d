"""Quotas of an account: operators' limits; counts of repositories, images, tags and bytes.

Limits are read by the statements that need them (`limit_query`), so an account without a limit
costs no statement of its own, and is not counted.

*Stored bytes.* The first push under a limit begins to count (`begin_counting`). From then on each
insertion or deletion of an object updates the number in the same transaction; a push that finds no
limit any more deletes the number. The number is changed last, and locked until the transaction
ends, so concurrent pushes of an account cannot exceed its limit together. Bytes being uploaded are
not yet an object, and do not count.

*Repositories, images and tags.* Their numbers are summed up from the rows of the account's
repositories. Changes that increase a limited number wait for each other.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from cloudcore.account_rows import lock_account
from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import given, total, value
from cloudcore.db.statement import Statement, TableLock, paged
from cloudcore.objects.damage import Miscount
from cloudcore.quotas.limits import (
    Counted,
    QuotaUse,
    last_event_level_query,
    limit_of,
    limit_query,
    refuse,
)
from cloudcore.quotas.quota import Quota
from registry.metadata.tables import blob_objects, repositories, stored_bytes
from registry.quotas import BLOB_BYTES, IMAGES, REPOSITORIES, TAGS

_o = blob_objects.c
_s = stored_bytes.c
_IS_CURRENT: Final = sa.text("blob_objects.is_current")
_IS_REPLACED: Final = sa.text("NOT blob_objects.is_current")
_HAS_BYTES: Final = sa.text("blob_objects.state <> 'shredded'")


class NotCounted(Exception):
    """The account has a limit of bytes, but its bytes are not counted yet; see `begin_counting`."""


class StorageAllowance(NamedTuple):
    """The limit and the counted bytes of an account, read by one statement."""

    limit: int | None
    """None if no operator has set one."""
    counted: int | None
    """None if the account's bytes are not counted."""


def _counted_of(account_id: Any) -> Any:  # noqa: ANN401
    return sa.select(_s.bytes).where(_s.account_id == account_id).scalar_subquery()


def _sum_of(account_id: Any) -> Any:  # noqa: ANN401
    """Build the sum of an account's object sizes; each of its two terms uses its own index."""
    is_owned = _o.account_id == account_id
    current = sa.select(total(_o.size)).where(is_owned, _IS_CURRENT)
    replaced = sa.select(total(_o.size)).where(is_owned, _IS_REPLACED, _HAS_BYTES)
    return current.scalar_subquery() + replaced.scalar_subquery()


def _used_of(account_id: Any) -> Any:  # noqa: ANN401
    return sa.func.coalesce(_counted_of(account_id), _sum_of(account_id))


def use_of(account_id: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """Build the columns that `read_use` reads: limit and use, both null without a limit.

    Without a limit the sum is not computed.
    """
    limit = limit_query(BLOB_BYTES, account_id)
    return limit, sa.case((limit.is_(None), sa.null()), else_=_used_of(account_id))


def read_use(row: Row) -> QuotaUse | None:
    """Convert the columns of `use_of`; return None without a limit."""
    limit, used = row
    return None if limit is None else QuotaUse(int(used), int(limit))


_ACCOUNT: Final[sa.ColumnElement[str]] = sa.bindparam("account_id")
ALLOWANCE: Final = (limit_query(BLOB_BYTES, _ACCOUNT), _counted_of(_ACCOUNT))
"""The columns of `StorageAllowance` for ``:account_id``."""
IS_FREE: Final = sa.and_(*(each.is_(None) for each in ALLOWANCE))
"""The condition that ``:account_id`` has no limit of bytes, and its bytes are not counted."""
_LIMIT, _USED = use_of(_ACCOUNT)
USE: Final = (_LIMIT, _USED)
IS_BEYOND: Final = sa.and_(_LIMIT.is_not(None), _USED + sa.bindparam("adding") > _LIMIT)
"""The condition that ``:account_id`` has a limit, and ``:adding`` more bytes exceed it."""
COUNTED_BYTES: Final = Counted(BLOB_BYTES, sa.select(_used_of(_ACCOUNT)))
_ADD: Final = Statement(
    stored_bytes.update()
    .where(given(_s.account_id))
    .values(bytes=_s.bytes + sa.bindparam("adding"))
    .returning(_s.bytes, last_event_level_query(BLOB_BYTES.name))
)
_FORGET: Final = Statement(stored_bytes.delete().where(given(_s.account_id)))
_HOLD_OBJECTS: Final = Statement(TableLock(blob_objects))
_COUNT: Final = Statement(
    insert(stored_bytes)
    .from_select(
        ["account_id", "bytes"], sa.select(value("account_id", _s.account_id), _sum_of(_ACCOUNT))
    )
    .on_conflict_do_update(index_elements=["account_id"], set_={"bytes": _sum_of(_ACCOUNT)})
)
_ACCOUNTS: Final = paged(
    sa.select(_s.account_id).where(_s.account_id > sa.bindparam("after")).order_by(_s.account_id)
)
_RECOUNT: Final = Statement(sa.select(_s.bytes, _sum_of(_ACCOUNT)).where(given(_s.account_id)))


def check_bytes(use: QuotaUse | None, adding: int) -> None:
    """Raise `QuotaExceeded` if an account has no room for a blob of `adding` bytes."""
    if use is not None and adding and use.used + adding > use.limit:
        refuse(
            BLOB_BYTES,
            use,
            f"the account may store {{limit}} bytes of blobs and has {use.used}, so this blob does"
            " not fit; delete images, or ask the operator for more",
        )


def begin_counting(tx: Connection, account_id: str) -> None:
    """Begin to count the bytes of an account, or count them again.

    On PostgreSQL, all pushes wait meanwhile: about a second for a million blobs.
    """
    tx.execute(_HOLD_OBJECTS)
    tx.execute(_COUNT, account_id=account_id)


def count_new(
    tx: Connection, account_id: str, size: int, found: StorageAllowance, now: int
) -> None:
    """Count a new object if the account has a limit; `found` is what the insertion returned.

    Notify the account if it has now used most or all of its bytes.

    Raise `QuotaExceeded` if the object exceeds the limit, `NotCounted` if the bytes are not counted
    yet: begin to count, and repeat the transaction.
    """
    if found.limit is None:
        if found.counted is not None:
            tx.execute(_FORGET, account_id=account_id)
        return
    row = None if found.counted is None else tx.row(_ADD, account_id=account_id, adding=size)
    if row is None:
        raise NotCounted
    use = QuotaUse(int(row[0]) - size, found.limit, row[1])
    check_bytes(use, size)
    COUNTED_BYTES.emit_level(tx, account_id, use, now, size)


def add_bytes(tx: Connection, account_id: str, change: int) -> None:
    """Add `change` to the account's counted bytes, if any, without checking the limit."""
    if change:
        tx.row(_ADD, account_id=account_id, adding=change)


def counted_accounts(tx: Connection, after: str, limit: int) -> list[str]:
    """Return up to `limit` ids after `after` of accounts whose bytes are counted."""
    return [row[0] for row in tx.rows(_ACCOUNTS, after=after, limit=limit)]


def find_miscount(tx: Connection, account_id: str) -> Miscount | None:
    """Compare an account's count with a recount; return None if equal, or if there is no count."""
    row = tx.row(_RECOUNT, account_id=account_id)
    if row is None or row[0] == row[1]:
        return None
    what = f"stored bytes of account {account_id}"
    return Miscount(what, int(row[0]), int(row[1]))


def correct_count(tx: Connection, account_id: str) -> Miscount | None:
    """Correct an account's count if it is wrong; return the miscount, or None.

    On PostgreSQL, all pushes wait meanwhile.
    """
    tx.execute(_HOLD_OBJECTS)
    wrong = find_miscount(tx, account_id)
    if wrong is not None:
        tx.execute(_COUNT, account_id=account_id)
    return wrong


_r = repositories.c


def _of_account(what: sa.ColumnElement[Any]) -> sa.Select[Any]:
    return sa.select(what).where(given(_r.account_id), _r.deleted_at.is_(None))


_BY_QUOTA: Final = {
    quota: Counted(quota, query)
    for quota, query in (
        (REPOSITORIES, _of_account(sa.func.count()).select_from(repositories)),
        (IMAGES, _of_account(sa.func.sum(_r.image_count))),
        (TAGS, _of_account(sa.func.sum(_r.tag_count))),
    )
}
COUNTED_RESOURCES: Final = tuple(_BY_QUOTA.values())


def check_added(
    tx: Connection, account_id: str, quota: Quota, limit: int | None, added: int, now: int
) -> None:
    """Check a quota after `tx` has added `added` resources; `limit` is None if none is set.

    Notify the account if it has now used most or all of its quota.

    Raise `QuotaExceeded` if the account now exceeds the limit.
    """
    if limit is None or added <= 0:
        return
    lock_account(tx, account_id)
    counted = _BY_QUOTA[quota]
    use = counted.read(tx, account_id)
    before = use._replace(used=use.used - added)
    if use.used > use.limit:
        words = f"the account may have {{limit}} {quota.words}; delete some, or ask the operator"
        refuse(quota, before, words)
    counted.emit_level(tx, account_id, before, now, added)


def check_restored(tx: Connection, account_id: str, quota: Quota, added: int, now: int) -> None:
    """Like `check_added`, but read the account's limit first."""
    limit = limit_of(tx, account_id, quota)
    check_added(tx, account_id, quota, None if limit == quota.default else limit, added, now)

"""The size and the pulls of repositories by day, in UTC."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, bindparam, func, select
from sqlalchemy.dialects.postgresql import Insert, insert

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.db.deletion import deletion
from cloudcore.db.statement import Statement, listed, page, text_list
from registry.metadata.activity_tables import repository_days
from registry.metadata.tables import manifests, repositories

DAY: Final = 24 * 3600 * MICROSECONDS
KEPT_DAYS: Final = 400
_BATCH: Final = 500

_d = repository_days.c
_r = repositories.c
_COLUMNS: Final = ("repository_id", "day", "account_id", "size_bytes", "pulls")

_REPOSITORIES_OF: Final = Statement(
    select(manifests.c.id, manifests.c.repository_id).where(manifests.c.id.in_(listed("ids")))
)


def _upsert(*which: ColumnElement[bool]) -> Insert:
    """Return the insertion of a row of today for each live repository that is `which`."""
    found = select(
        _r.id,
        bindparam("day", type_=_d.day.type),
        _r.account_id,
        _r.size_bytes,
        bindparam("pulls", type_=_d.pulls.type),
    ).where(*which, _r.deleted_at.is_(None))
    return insert(repository_days).from_select(_COLUMNS, found)


_pulled = _upsert(_r.id == bindparam("repository_id"))
_ADD_PULLS: Final = Statement(
    _pulled.on_conflict_do_update(
        index_elements=["repository_id", "day"], set_={"pulls": _d.pulls + _pulled.excluded.pulls}
    )
)
_measured = _upsert(_r.id >= bindparam("first"), _r.id <= bindparam("last"))
_MEASURE: Final = Statement(
    _measured.on_conflict_do_update(
        index_elements=["repository_id", "day"],
        set_={"size_bytes": _measured.excluded.size_bytes},
    )
)
_NEXT: Final = Statement(page(select(_r.id).where(_r.id > bindparam("after")).order_by(_r.id)))
_BY_DAY: Final = Statement(
    select(_d.day, func.sum(_d.size_bytes), func.sum(_d.pulls))
    .where(
        _d.account_id == bindparam("account_id"),
        _d.day >= bindparam("first"),
        _d.day <= bindparam("last"),
    )
    .group_by(_d.day)
    .order_by(_d.day)
)
_ON_DAY: Final = Statement(
    select(_r.id, _r.name, _d.size_bytes)
    .join(repository_days, _d.repository_id == _r.id)
    .where(_d.account_id == bindparam("account_id"), _d.day == bindparam("day"))
)
_FORGET: Final = deletion(_d.day)


class AccountDay(NamedTuple):
    """What an account's repositories held on a day, and how often they were pulled."""

    day: int
    """Since the epoch."""
    size_bytes: int
    pulls: int


class SizeOnDay(NamedTuple):
    """The size of a repository on a day."""

    id: str
    name: str
    size_bytes: int


def add_pulls(tx: Connection, pulls: Mapping[tuple[str, int], int]) -> None:
    """Add pulls to the days of their repositories, given by manifest id and day."""
    ids = sorted({manifest_id for manifest_id, _ in pulls})
    owners = {row[0]: row[1] for row in tx.rows(_REPOSITORIES_OF, ids=text_list(ids))}
    counts: Counter[tuple[str, int]] = Counter()
    for (manifest_id, day), count in pulls.items():
        if manifest_id in owners:  # else deleted meanwhile
            counts[owners[manifest_id], day] += count
    # Sorted, so that two processes lock rows in the same order and never deadlock.
    for (repository_id, day), count in sorted(counts.items()):
        tx.execute(_ADD_PULLS, day=day, pulls=count, repository_id=repository_id)


def measure_batch(tx: Connection, day: int, after: str) -> str | None:
    """Record the sizes of a batch of repositories with ids above `after`.

    Return the id after which the next batch begins, or None after the last.
    """
    ids = [row[0] for row in tx.rows(_NEXT, after=after, limit=_BATCH)]
    if not ids:
        return None
    tx.execute(_MEASURE, day=day, pulls=0, first=ids[0], last=ids[-1])
    return str(ids[-1])


def list_account_days(tx: Connection, account_id: str, first: int, last: int) -> list[AccountDay]:
    """Return the days from `first` to `last` that have a row, in order."""
    rows = tx.rows(_BY_DAY, account_id=account_id, first=first, last=last)
    return [AccountDay(*map(int, row)) for row in rows]


def sizes_on(tx: Connection, account_id: str, day: int) -> list[SizeOnDay]:
    """Return the sizes of the repositories that have a row for the day, unordered."""
    rows: Sequence[Sequence[object]] = tx.rows(_ON_DAY, account_id=account_id, day=day)
    return [SizeOnDay(str(row[0]), str(row[1]), int(str(row[2]))) for row in rows]


def forget_days(tx: Connection, now: int) -> int:
    """Delete a batch of the rows older than `KEPT_DAYS`; return how many."""
    return tx.execute(_FORGET, before=now // DAY - KEPT_DAYS - 1)

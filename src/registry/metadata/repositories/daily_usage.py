"""The size and the pulls of repositories and accounts by day in UTC, and their growth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, bindparam, case, func, select
from sqlalchemy.dialects.postgresql import Insert, insert

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.db.rows import ZERO, bound, deletion, find_all, first, given, value
from cloudcore.db.statement import Statement, listed, paged, text_list
from registry.metadata.control_tables import account_days, repository_days, repository_growth
from registry.metadata.repositories.stale import OF_BATCH, record_uses
from registry.metadata.tables import manifests, repositories

DAY: Final = 24 * 3600 * MICROSECONDS
KEPT_DAYS: Final = 400
SPANS: Final = (7, 30, 90, 366)
"""The numbers of days over which growth is measured."""
_BATCH: Final = 500

_d = repository_days.c
_a = account_days.c
_g = repository_growth.c
_r = repositories.c
_COLUMNS: Final = ("repository_id", "day", "account_id", "size_bytes", "pulls")

_REPOSITORIES_OF: Final = Statement(
    select(manifests.c.id, manifests.c.repository_id, manifests.c.account_id).where(
        manifests.c.id.in_(listed("ids"))
    )
)
_ACCOUNTS_OF: Final = Statement(select(_r.id, _r.account_id).where(_r.id.in_(listed("ids"))))


def _upsert(*which: ColumnElement[bool]) -> Insert:
    """Build the insertion of a day's row for each live repository that meets `which`."""
    found = select(
        _r.id, value("day", _d.day), _r.account_id, _r.size_bytes, value("pulls", _d.pulls)
    ).where(*which, _r.deleted_at.is_(None))
    return insert(repository_days).from_select(_COLUMNS, found)


_pulled = _upsert(_r.id == bindparam("repository_id"))
_ADD_PULLS: Final = Statement(
    _pulled.on_conflict_do_update(
        index_elements=["repository_id", "day"], set_={"pulls": _d.pulls + _pulled.excluded.pulls}
    )
)
_measured = _upsert(OF_BATCH)
_MEASURE: Final = Statement(
    _measured.on_conflict_do_update(
        index_elements=["repository_id", "day"], set_={"size_bytes": _measured.excluded.size_bytes}
    )
)
_NEXT: Final = paged(select(_r.id).where(_r.id > bindparam("after")).order_by(_r.id))
_SUMS: Final = Statement(
    select(_r.account_id, func.sum(case((_r.deleted_at.is_(None), _r.size_bytes), else_=ZERO)))
    .where(OF_BATCH)
    .group_by(_r.account_id)
)


def _upsert_account_day(size_bytes: ColumnElement[int], pulls: ColumnElement[int]) -> Insert:
    return insert(account_days).values(
        **bound(("account_id", "day")), size_bytes=size_bytes, pulls=pulls
    )


_e = account_days.alias("earlier").c
_last_size = first(
    select(_e.size_bytes)
    .where(given(_e.account_id), _e.day < bindparam("day"))
    .order_by(_e.day.desc())
).scalar_subquery()
_account_pulled = _upsert_account_day(func.coalesce(_last_size, ZERO), value("pulls", _a.pulls))
_ADD_ACCOUNT_PULLS: Final = Statement(
    _account_pulled.on_conflict_do_update(
        index_elements=["account_id", "day"],
        set_={"pulls": _a.pulls + _account_pulled.excluded.pulls},
    )
)
_account_measured = _upsert_account_day(value("size", _a.size_bytes), ZERO)
_MEASURE_ACCOUNT: Final = Statement(
    _account_measured.on_conflict_do_update(
        index_elements=["account_id", "day"],
        set_={"size_bytes": _account_measured.excluded.size_bytes},
    )
)
_FORGET_GROWTH: Final = Statement(
    repository_growth.delete().where(
        _g.repository_id >= bindparam("first"), _g.repository_id <= bindparam("last")
    )
)
_first_size = first(
    select(_d.size_bytes)
    .where(_d.repository_id == _r.id, _d.day >= bindparam("since"))
    .order_by(_d.day)
    .correlate(repositories)
).scalar_subquery()
_grown = (
    select(
        _r.id,
        _r.account_id,
        _r.size_bytes,
        case(
            (_r.created_at >= value("since_moment", _r.created_at), ZERO),
            else_=func.coalesce(_first_size, ZERO),
        ).label("before"),
    )
    .where(OF_BATCH, _r.deleted_at.is_(None))
    .subquery("grown")
)
_MEASURE_GROWTH: Final = Statement(
    insert(repository_growth).from_select(
        ["repository_id", "span", "account_id", "size_before", "size_bytes", "change_bytes"],
        select(
            _grown.c.id,
            value("span", _g.span),
            _grown.c.account_id,
            _grown.c.before,
            _grown.c.size_bytes,
            func.abs(_grown.c.size_bytes - _grown.c.before),
        ).where(_grown.c.size_bytes != _grown.c.before),
    )
)
_LIST_GROWTH: Final = paged(
    select(_r.id, _r.name, _g.size_bytes, _g.size_before)
    .select_from(repository_growth)
    .join(repositories, _r.id == _g.repository_id)
    .where(given(_g.account_id, _g.span), _r.deleted_at.is_(None))
    .order_by(_g.change_bytes.desc(), _g.repository_id.desc())
)
_BY_DAY: Final = Statement(
    select(_a.day, _a.size_bytes, _a.pulls)
    .where(given(_a.account_id), _a.day >= bindparam("first"), _a.day <= bindparam("last"))
    .order_by(_a.day)
)
_KEPT_SECONDS: Final = (KEPT_DAYS + 1) * 24 * 3600
forget_days: Final = deletion(_d.day, kept_seconds=_KEPT_SECONDS, unit=DAY)
"""Deletes a batch of the rows older than `KEPT_DAYS`."""
forget_account_days: Final = deletion(_a.day, kept_seconds=_KEPT_SECONDS, unit=DAY)
"""Deletes a batch of the accounts' rows older than `KEPT_DAYS`."""


class AccountDay(NamedTuple):
    """The total size of an account's repositories on a day, and the number of pulls."""

    day: int
    """The number of the day since the epoch."""
    size_bytes: int
    pulls: int


class Growth(NamedTuple):
    """A repository's size after a span and `before` the span (0 if it did not exist yet)."""

    repository_id: str
    name: str
    size_bytes: int
    before: int


class Measured(NamedTuple):
    """The result of measuring a batch of repositories: the last one's id, and sums per account."""

    last: str
    sums: dict[str, int]
    """Maps account ids to the bytes of the account's live repositories in the batch."""


def accounts_of(tx: Connection, repository_ids: Sequence[str]) -> list[tuple[str, str]]:
    """Return (repository id, account id) of these repositories, also of deleted, unpurged ones."""
    if not repository_ids:
        return []
    return list(tx.rows(_ACCOUNTS_OF, ids=text_list(sorted(repository_ids))))


def add_pulls(tx: Connection, pulls: Mapping[tuple[str, int], int]) -> dict[str, str]:
    """Add pulls to the days of repositories and accounts; return the pulled manifests' accounts.

    `pulls` maps (manifest id, day) to a number. The result maps the ids of manifests that still
    exist to account ids. There is one statement for each repository and day, and one for each
    account and day.
    """
    ids = sorted({manifest_id for manifest_id, _ in pulls})
    if not ids:
        return {}
    owners = {row[0]: (row[1], row[2]) for row in tx.rows(_REPOSITORIES_OF, ids=text_list(ids))}
    counts: Counter[tuple[str, int]] = Counter()
    of_accounts: Counter[tuple[str, int]] = Counter()
    for (manifest_id, day), count in pulls.items():
        if manifest_id in owners:  # else deleted meanwhile
            repository_id, account_id = owners[manifest_id]
            counts[repository_id, day] += count
            of_accounts[account_id, day] += count
    # Sorted, so that two processes lock rows in the same order and never deadlock.
    for (repository_id, day), count in sorted(counts.items()):
        tx.execute(_ADD_PULLS, day=day, pulls=count, repository_id=repository_id)
    for (account_id, day), count in sorted(of_accounts.items()):
        tx.execute(_ADD_ACCOUNT_PULLS, account_id=account_id, day=day, pulls=count)
    return {manifest_id: account_id for manifest_id, (_, account_id) in owners.items()}


def measure_batch(tx: Connection, day: int, after: str) -> Measured | None:
    """Write the day's size, the last use and the growth of the next repositories after an id.

    Return None if there are no more repositories.
    """
    ids = [row[0] for row in tx.rows(_NEXT, after=after, limit=_BATCH)]
    if not ids:
        return None
    of_batch = {"first": ids[0], "last": ids[-1]}
    tx.execute(_MEASURE, day=day, pulls=0, **of_batch)
    tx.execute(_FORGET_GROWTH, **of_batch)
    for span in SPANS:
        since = day - span + 1
        tx.execute(_MEASURE_GROWTH, span=span, since=since, since_moment=since * DAY, **of_batch)
    record_uses(tx, *of_batch.values())
    sums = {str(row[0]): int(row[1]) for row in tx.rows(_SUMS, **of_batch)}
    return Measured(str(ids[-1]), sums)


def measure_accounts(tx: Connection, day: int, sums: Mapping[str, int]) -> None:
    """Write the sizes of accounts on a day; `sums` maps account ids to bytes."""
    for account_id, size in sorted(sums.items()):
        tx.execute(_MEASURE_ACCOUNT, account_id=account_id, day=day, size=size)


def list_account_days(tx: Connection, account_id: str, first: int, last: int) -> list[AccountDay]:
    """Return the days from `first` to `last` that have a row, in order."""
    rows = tx.rows(_BY_DAY, account_id=account_id, first=first, last=last)
    return [AccountDay(*map(int, row)) for row in rows]


def list_growth(tx: Connection, account_id: str, span: int, limit: int) -> list[Growth]:
    """Return up to `limit` repositories whose size changed most over `span` days.

    The largest change comes first. `span` is one of `SPANS`. The cost depends only on how many are
    returned.
    """
    return find_all(tx, Growth, _LIST_GROWTH, account_id=account_id, span=span, limit=limit)

"""Limits that operators have set, errors beyond them, and events when an account nears a limit.

A limit is read in the transaction of the change that it may refuse. If a query counts the use, the
same statement reads the limit (`Counted`).

An account gets an event when an addition brings its use to a level (`NEARLY_REACHED` or `REACHED`),
and the same event again only after an addition has found the use well below that level. The level
of the last event is stored, and `Counted` reads it together with the use, so an addition writes
only when the level changes.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, NoReturn

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.rows import ZERO, bound, given, insert_or_change
from cloudcore.db.schema import ByteOrdered, Moment
from cloudcore.db.statement import Statement
from cloudcore.db.tables import columns, refers, table
from cloudcore.errors import QuotaExceeded
from cloudcore.events import emit_from_platform
from cloudcore.quotas.quota import NEARLY_REACHED, REACHED, Quota

NEARLY_REACHED_PERCENT: Final = 80
"""Level at which `NEARLY_REACHED` is emitted, in per cent of the limit."""
REACHED_PERCENT: Final = 100
_WELL_BELOW: Final = 10
"""How far the use must fall below a level before its event can be emitted again, in per cent of
the limit."""
_TYPES: Final = {NEARLY_REACHED_PERCENT: NEARLY_REACHED, REACHED_PERCENT: REACHED}

quota_levels = table(
    "quota_levels",
    refers("account_id KEY", "accounts"),
    columns(ByteOrdered, "name KEY"),
    columns(sa.Integer, "percent"),
    sa.CheckConstraint("percent IN (0, 80, 100)", name="percent"),
)
_l = quota_levels.c
_new: Final = insert(quota_levels).values(bound(("account_id", "name", "percent")))
# If several changes bring an account to a level at once, only one of them changes the row.
_RAISE: Final = Statement(
    _new.on_conflict_do_update(
        index_elements=["account_id", "name"],
        set_={"percent": _new.excluded.percent},
        where=_l.percent < _new.excluded.percent,
    )
)
_LOWER: Final = Statement(
    quota_levels.update()
    .where(given(_l.account_id, _l.name), _l.percent > sa.bindparam("below"))
    .values(percent=sa.bindparam("below"))
)


def last_event_level_query(name: str) -> sa.ColumnElement[Any]:
    """Return a scalar query for the level of an account's last event of a quota; 0 if none.

    The bind parameter ``account_id`` is the account.
    """
    found = sa.select(_l.percent).where(
        given(_l.account_id), _l.name == sa.literal_column(f"'{name}'")
    )
    return sa.func.coalesce(found.scalar_subquery(), ZERO)


def reached_level(used: int, limit: int) -> int:
    """Return the highest level that a use has reached, in per cent of the limit; 0 if none."""
    if used >= limit:
        return REACHED_PERCENT
    return NEARLY_REACHED_PERCENT if used * 100 >= limit * NEARLY_REACHED_PERCENT else 0


EVERY_ACCOUNT: Final = ""
"""Stands for an account id in `put_limit` and `remove_limit`: all accounts without their own
limit."""
MAX_QUOTA: Final = 2**62
"""The largest limit that can be set."""

_AT_LEAST_NONE: Final = "maximum >= 0"
quotas = table(
    "quotas",
    refers("account_id KEY", "accounts"),
    columns(ByteOrdered, "name KEY"),
    columns(sa.BigInteger, "maximum"),
    columns(Moment, "updated_at"),
    sa.CheckConstraint(_AT_LEAST_NONE, name="maximum"),
)
quota_defaults = table(
    "quota_defaults",
    columns(ByteOrdered, "name KEY"),
    columns(sa.BigInteger, "maximum"),
    columns(Moment, "updated_at"),
    sa.CheckConstraint(_AT_LEAST_NONE, name="maximum"),
)
_q, _d = quotas.c, quota_defaults.c
_ACCOUNT: Final[sa.ColumnElement[str]] = sa.bindparam("account_id")
_OF_ACCOUNT: Final = _q.account_id == _ACCOUNT


def _limit_query(
    name: sa.ColumnElement[str],
    account_id: sa.ColumnElement[Any] = _ACCOUNT,
) -> sa.ColumnElement[Any]:
    """Return a scalar query for the limit that operators have set, or null.

    The account's own limit takes precedence over the limit for all accounts.
    """
    own = sa.select(_q.maximum).where(_q.account_id == account_id, _q.name == name)
    every = sa.select(_d.maximum).where(_d.name == name)
    return sa.func.coalesce(own.scalar_subquery(), every.scalar_subquery())


_LIMIT: Final = Statement(sa.select(_limit_query(sa.bindparam("name"))))
_PUT: Final = Statement(insert_or_change(quotas, ("account_id", "name", "maximum", "updated_at")))
_PUT_DEFAULT: Final = Statement(insert_or_change(quota_defaults, ("name", "maximum", "updated_at")))
_REMOVE: Final = Statement(quotas.delete().where(given(_q.account_id, _q.name)))
_REMOVE_DEFAULT: Final = Statement(quota_defaults.delete().where(given(_d.name)))
_LIST: Final = Statement(sa.select(_q.name, _q.maximum).where(_OF_ACCOUNT))
_LIST_DEFAULTS: Final = Statement(sa.select(_d.name, _d.maximum))


class QuotaUse(NamedTuple):
    """An account's use, limit and level of the last event for a quota, read by one statement."""

    used: int
    limit: int
    last_level: int = 0
    """The level of the last event (`last_event_level_query`)."""


class OperatorLimits(NamedTuple):
    """The limits of one quota that operators have set: for one account and for all."""

    own: int | None = None
    """The limit for the account; None if none is set."""
    every: int | None = None
    """The limit for every account; None if none is set."""

    def limit(self, default: int) -> int:
        """Return the limit in force: the account's, or every account's, or `default`."""
        if self.own is not None:
            return self.own
        return default if self.every is None else self.every


class Counted:
    """A quota, and the query that counts how much of it an account uses."""

    def __init__(self, quota: Quota, used: sa.Select[Any]) -> None:
        """Count with `used`, a query for one number with the bind parameter ``account_id``."""
        self.quota: Final = quota
        found = used.scalar_subquery()
        self.statement: Final = Statement(
            sa.select(
                sa.func.coalesce(found, ZERO),
                limit_query(quota),
                last_event_level_query(quota.name),
            )
        )

    def read(
        self, tx: Connection, account_id: str, default: int | None = None, /, **parameters: object
    ) -> QuotaUse:
        """Return an account's use and limit; `default` replaces the quota's default limit.

        `parameters` are further bind parameters of the counting query.
        """
        row = tx.row(self.statement, account_id=account_id, **parameters)
        assert row is not None
        used, limit, last_level = row
        if limit is None:
            limit = self.quota.default if default is None else default
        return QuotaUse(int(used), int(limit), last_level)

    def check(
        self, tx: Connection, account_id: str, words: str, /, **parameters: object
    ) -> QuotaUse:
        """Return the result of `read`; raise `QuotaExceeded` if one more would exceed the limit.

        `words` is the message; see `refuse`.
        """
        use = self.read(tx, account_id, **parameters)
        if use.used >= use.limit:
            refuse(self.quota, use, words)
        return use

    def check_and_emit(
        self, tx: Connection, account_id: str, more: int, now: int, words: str
    ) -> None:
        """Raise `QuotaExceeded` if `more` would exceed the limit; else emit an event if due.

        Call it last in a transaction. `words` name what is limited, for the error, such as "MiB of
        memory".
        """
        use = self.read(tx, account_id)
        if use.used + more > use.limit:
            found = f"an account has at most {{limit}} {words}; it has {{used}}, and {more} more"
            refuse(self.quota, use, f"{found} were asked for")
        self.emit_level(tx, account_id, use, now, more)

    def emit_level(
        self, tx: Connection, account_id: str, use: QuotaUse, now: int, added: int = 1
    ) -> None:
        """Emit an event if a change brings an account to a new level.

        `use` was read before the change, which adds `added`. Call it last in a transaction.
        """
        before, limit, last_level = use
        of = {"account_id": account_id, "name": self.quota.name}
        if before * 100 < limit * (last_level - _WELL_BELOW):
            last_level = reached_level(before, limit)
            tx.execute(_LOWER, **of, below=last_level)
        used = before + added
        level = reached_level(used, limit)
        if level > last_level and tx.execute(_RAISE, **of, percent=level):
            data = {"quota": self.quota.name, "percent": level, "used": used, "limit": limit}
            emit_from_platform(tx, account_id, _TYPES[level], data, now)


def limit_query(
    quota: Quota, account_id: sa.ColumnElement[Any] = _ACCOUNT
) -> sa.ColumnElement[Any]:
    """Return a scalar query for the limit that operators have set for an account, or null.

    `account_id` is the bind parameter or the column that has the account's id.
    """
    return _limit_query(sa.literal_column(f"'{quota.name}'"), account_id)


def limit_of(tx: Connection, account_id: str, quota: Quota) -> int:
    """Return the limit in force for an account."""
    row = tx.row(_LIMIT, account_id=account_id, name=quota.name)
    return quota.default if row is None or row[0] is None else int(row[0])


def rows_up_to_limit(quota: Quota, query: sa.Select[Any]) -> sa.Subquery:
    """Return a subquery for the rows of `query`, at most as many as the account's limit.

    It has the bind parameter ``account_id``.
    """
    most = sa.func.coalesce(limit_query(quota), sa.literal_column(str(quota.default)))
    return query.limit(most).offset(ZERO).subquery()


def count_up_to_limit(quota: Quota, query: sa.Select[Any]) -> sa.Select[Any]:
    """Return a query that counts the rows of `query`, up to the account's limit.

    It has the bind parameter ``account_id``.
    """
    return sa.select(sa.func.count()).select_from(rows_up_to_limit(quota, query))


def check_limit(tx: Connection, account_id: str, quota: Quota, used: int, words: str) -> None:
    """Raise `QuotaExceeded` if `used` has reached the account's limit; see `refuse`."""
    limit = limit_of(tx, account_id, quota)
    if used >= limit:
        refuse(quota, QuotaUse(used, limit), words)


def refuse(
    quota: Quota, use: QuotaUse, words: str, kind: type[QuotaExceeded] = QuotaExceeded
) -> NoReturn:
    """Raise `kind`; `words` is its message, in which ``{limit}`` and ``{used}`` are replaced."""
    message = words.format(limit=use.limit, used=use.used)
    raise kind(message, quota=quota.name, limit=use.limit, used=use.used)


def operator_limits(tx: Connection, account_id: str) -> dict[str, OperatorLimits]:
    """Map quota name to the limits that operators have set; other quotas are left out."""
    own: dict[str, int] = dict(tx.rows(_LIST, account_id=account_id))
    every: dict[str, int] = dict(tx.rows(_LIST_DEFAULTS))
    return {name: OperatorLimits(own.get(name), every.get(name)) for name in {*own, *every}}


def put_limit(tx: Connection, account_id: str, name: str, maximum: int, now: int) -> None:
    """Set a limit for an account, or for `EVERY_ACCOUNT`."""
    of, owner = (_PUT, {"account_id": account_id}) if account_id else (_PUT_DEFAULT, {})
    tx.execute(of, **owner, name=name, maximum=maximum, updated_at=now)


def remove_limit(tx: Connection, account_id: str, name: str) -> bool:
    """Delete the limit of an account, or of `EVERY_ACCOUNT`; return False if there was none."""
    of, owner = (_REMOVE, {"account_id": account_id}) if account_id else (_REMOVE_DEFAULT, {})
    return tx.execute(of, **owner, name=name) == 1

"""What accounts are told of their quotas: that they have most of what they may have, or all of it.

An account is told once that it has come to a level, by the transaction that adds what brings it
there; then again only after an addition found it well below. What it was told last is read by the
statement that counts (`Counted`), so an addition writes only where that changes.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    CheckConstraint,
    Column,
    ColumnElement,
    ForeignKey,
    Integer,
    Table,
    bindparam,
    func,
    literal_column,
    select,
)
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.rows import bound, given
from cloudcore.db.schema import ByteOrdered, Id, metadata
from cloudcore.db.statement import Statement
from cloudcore.events import tell_later
from cloudcore.quotas.quota import NEARLY_REACHED, REACHED

MOST_OF_IT: Final = 80
"""Per cent."""
ALL_OF_IT: Final = 100
_WELL_BELOW: Final = 10
"""Per cent of the limit: what goes to and fro across a level is told once."""
_TYPES: Final = {MOST_OF_IT: NEARLY_REACHED, ALL_OF_IT: REACHED}

quota_levels = Table(
    "quota_levels",
    metadata,
    # The type is said, since accounts may not be known yet when the statements are made.
    Column("account_id", Id, ForeignKey("accounts.id"), primary_key=True),
    Column("name", ByteOrdered, primary_key=True),
    Column("percent", Integer, nullable=False),
    CheckConstraint("percent IN (0, 80, 100)", name="percent"),
)
_l = quota_levels.c
_new: Final = insert(quota_levels).values(bound(("account_id", "name", "percent")))
# Of those that bring an account to a level at the same moment, one changes the row.
_RAISE: Final = Statement(
    _new.on_conflict_do_update(
        index_elements=["account_id", "name"],
        set_={"percent": _new.excluded.percent},
        where=_l.percent < _new.excluded.percent,
    )
)
_LOWER: Final = Statement(
    quota_levels.update()
    .where(given(_l.account_id, _l.name), _l.percent > bindparam("below"))
    .values(percent=bindparam("below"))
)


def level_told(name: str) -> ColumnElement[Any]:
    """Return the level that ``:account_id`` was told last, as a scalar query; 0 if none."""
    found = select(_l.percent).where(
        _l.account_id == bindparam("account_id"), _l.name == literal_column(f"'{name}'")
    )
    return func.coalesce(found.scalar_subquery(), literal_column("0"))


def level_of(used: int, limit: int) -> int:
    """Return the level that is reached, in per cent; 0 below the first."""
    if used >= limit:
        return ALL_OF_IT
    return MOST_OF_IT if used * 100 >= limit * MOST_OF_IT else 0


def tell_level(
    tx: Connection,
    account_id: str,
    name: str,
    before: int,
    added: int,
    limit: int,
    told: int,
    now: int,
) -> None:
    """Tell an account that has come to a level, unless it was told; call it last in a change.

    It had `before`, and the change has `added` to it. `told` is the `level_told` of the statement
    that counted.
    """
    if before * 100 < limit * (told - _WELL_BELOW):
        told = level_of(before, limit)
        tx.execute(_LOWER, account_id=account_id, name=name, below=told)
    used = before + added
    level = level_of(used, limit)
    if level > told and tx.execute(_RAISE, account_id=account_id, name=name, percent=level):
        data = {"quota": name, "percent": level, "used": used, "limit": limit}
        tell_later(tx, account_id, _TYPES[level], data, now)

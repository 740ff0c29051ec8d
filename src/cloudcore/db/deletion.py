"""Delete expired rows in batches, so that no transaction holds up other writers for long."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import bindparam, literal_column, select, tuple_

from cloudcore.db.base import Connection, Database
from cloudcore.db.statement import Statement

if TYPE_CHECKING:
    from sqlalchemy import Column, ColumnElement

BATCH: Final = 500
"""Maximum rows that one statement deletes."""

Forget = Callable[[Connection, int], int]
"""Deletes a batch of the rows that have expired at a moment; returns how many it deleted."""


def deletion(moment: Column[Any], *also: ColumnElement[bool]) -> Statement:
    """Return the statement that deletes the `BATCH` rows with the earliest `moment`.

    Only rows with a moment up to ``:before`` are deleted, and only those that are `also` so. An
    index should begin with the moment.
    """
    table = moment.table
    before: ColumnElement[int] = bindparam("before")
    oldest = (
        select(*table.primary_key)
        .where(moment <= before, *also)
        .order_by(moment)
        .limit(literal_column(str(BATCH)))
        .offset(literal_column("0"))  # else the SQLite dialect binds one as an unnamed parameter
    )
    key = tuple_(*table.primary_key)
    # Again for a row that another transaction has changed meanwhile; the sum keeps the planner from
    # reading the moment's index twice.
    is_due = moment + literal_column("0") <= before
    return Statement(table.delete().where(key.in_(oldest), is_due, *also))


async def forget_all(database: Database, forget: Forget, now: int) -> int:
    """Call `forget`, each time in a transaction of its own, until it deletes nothing.

    Return the number of deleted rows.
    """
    total = 0
    while deleted := await database.write_relaxed(forget, now):
        total += deleted
    return total

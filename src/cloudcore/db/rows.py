"""Common parts of queries: columns, inserts, counts, and deletion of expired rows in batches.

A batch is small, so that no transaction holds up other writers for long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import Insert, insert

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection, Database
from cloudcore.db.statement import Statement

ZERO: Final[sa.ColumnElement[int]] = sa.literal_column("0", sa.Integer())
ONE: Final[sa.ColumnElement[int]] = sa.literal_column("1", sa.Integer())


def total(amount: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Return the sum of a column; 0 if there are no rows."""
    return sa.func.coalesce(sa.func.sum(amount), ZERO)


def first(query: sa.Select[Any]) -> sa.Select[Any]:
    """Limit `query` to its first row."""
    return query.limit(ONE).offset(ZERO)  # else the SQLite dialect binds an offset, unnamed


def value(name: str, column: sa.ColumnElement[Any]) -> sa.BindParameter[Any]:
    """Return a bind parameter with the type of `column`, for a query's list of columns."""
    return sa.bindparam(name, type_=column.type)


def columns_of(table: sa.Table, names: Iterable[str]) -> sa.Select[Any]:
    """Return a query that selects the columns with these names, such as a named tuple's fields."""
    return sa.select(*(table.c[name] for name in names))


def given(*columns: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """Return the condition that each of these columns equals the parameter of the same name."""
    return sa.and_(*(column == sa.bindparam(column.key) for column in columns))


def bound(names: Iterable[str]) -> dict[str, sa.BindParameter[Any]]:
    """Map each column name to the parameter of the same name, for an INSERT or UPDATE."""
    return {name: sa.bindparam(name) for name in names}


def insert_new(table: sa.Table, names: Iterable[str]) -> Insert:
    """Return an INSERT of one row that does nothing if a key is already taken."""
    return insert(table).values(bound(names)).on_conflict_do_nothing()


def insert_or_change(table: sa.Table, names: Sequence[str], changed: Sequence[str] = ()) -> Insert:
    """Return an INSERT of one row that updates the row with the same primary key, if there is one.

    The columns `changed` are updated; by default, all columns but the key.
    """
    key = [column.name for column in table.primary_key]
    new = insert(table).values(bound(names))
    others = changed or [name for name in names if name not in key]
    return new.on_conflict_do_update(
        index_elements=key, set_={name: new.excluded[name] for name in others}
    )


def insert_rows(table: sa.Table, query: sa.Select[Any]) -> Insert:
    """Return an INSERT of a query's rows; the query's column names or labels are the targets."""
    return insert(table).from_select(query.selected_columns.keys(), query)


def json_text(value: object) -> str:
    """Return a value as the JSON text in which documents are stored."""
    return msgspec.json.encode(value).decode()


T = TypeVar("T")


def find_one(
    tx: Connection, make: Callable[..., T], statement: Statement, /, **parameters: object
) -> T | None:
    """Return `make(*row)` for the row that a query finds, or None if it finds no row."""
    row = tx.row(statement, **parameters)
    return None if row is None else make(*row)


def find_all(
    tx: Connection, make: Callable[..., T], statement: Statement, /, **parameters: object
) -> list[T]:
    """Return `make(*row)` for each row that a query finds."""
    return [make(*row) for row in tx.rows(statement, **parameters)]


def count(tx: Connection, statement: Statement, /, **parameters: object) -> int:
    """Return the number that a query selects; 0 if it finds no row."""
    row = tx.row(statement, **parameters)
    return 0 if row is None else int(row[0])


BATCH: Final = 500
"""Maximum rows that one statement deletes."""

Forget = Callable[[Connection, int], int]
"""Deletes a batch of the rows that have expired at a moment; returns the number deleted."""


class Sweep(Statement):
    """A statement that deletes expired rows of all accounts; a `Forget`."""

    def __init__(self, construct: sa.ClauseElement, kept_seconds: int, unit: int) -> None:
        """Store the statement; a row expires `kept_seconds` after the moment in its column.

        The column counts in units of `unit` microseconds.
        """
        super().__init__(construct)
        self._kept = kept_seconds * MICROSECONDS
        self._unit = unit

    def __call__(self, tx: Connection, now: int) -> int:
        """Delete a batch of the rows that have expired by `now`; return the number deleted."""
        return tx.execute(self, before=(now - self._kept) // self._unit)


def deletion(
    moment: sa.Column[Any], *also: sa.ColumnElement[bool], kept_seconds: int = 0, unit: int = 1
) -> Sweep:
    """Return a statement that deletes the `BATCH` expired rows with the earliest `moment`.

    A row expires `kept_seconds` after its moment, which is in units of `unit` microseconds. Only
    rows that meet the conditions `also` are deleted. An index should begin with the moment.
    """
    table = moment.table
    before: sa.ColumnElement[int] = sa.bindparam("before")
    oldest = (
        sa.select(*table.primary_key)
        .where(moment <= before, *also)
        .order_by(moment)
        .limit(sa.literal_column(str(BATCH)))
        .offset(ZERO)
    )
    key = sa.tuple_(*table.primary_key)
    # Repeat the condition, for a row that another transaction has changed meanwhile; the sum keeps
    # the planner from reading the moment's index twice.
    is_due = moment + ZERO <= before
    return Sweep(table.delete().where(key.in_(oldest), is_due, *also), kept_seconds, unit)


async def forget_all(database: Database, forget: Forget, now: int) -> int:
    """Run `forget` in one transaction after another, until it deletes nothing.

    Return the total number of deleted rows.
    """
    total = 0
    while deleted := await database.write_relaxed(forget, now):
        total += deleted
    return total

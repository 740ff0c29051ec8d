"""What most queries of rows have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import BindParameter, ColumnElement, Select, Table, and_, bindparam, select
from sqlalchemy.dialects.postgresql import Insert, insert

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement


def columns(table: Table, names: Iterable[str]) -> Select[Any]:
    """Return a query of the columns of these names, such as the fields of a named tuple."""
    return select(*(table.c[name] for name in names))


def given(*columns: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return the condition that each of these columns is the parameter of its name."""
    return and_(*(column == bindparam(column.key) for column in columns))


def bound(names: Iterable[str]) -> dict[str, BindParameter[Any]]:
    """Return the values of an insertion or a change: for each column the parameter of its name."""
    return {name: bindparam(name) for name in names}


def insert_new(table: Table, names: Iterable[str]) -> Insert:
    """Return the insertion of a row, which does nothing if one of its keys is taken."""
    return insert(table).values(bound(names)).on_conflict_do_nothing()


def insert_or_change(table: Table, names: Sequence[str], changed: Sequence[str] = ()) -> Insert:
    """Return the insertion of a row, or the change of the row that has its primary key.

    What is `changed` then is all but the key by default.
    """
    key = [column.name for column in table.primary_key]
    new = insert(table).values(bound(names))
    others = changed or [name for name in names if name not in key]
    return new.on_conflict_do_update(
        index_elements=key, set_={name: new.excluded[name] for name in others}
    )


def count(tx: Connection, statement: Statement, /, **parameters: object) -> int:
    """Return the number that a query finds; 0 if it finds no row."""
    row = tx.row(statement, **parameters)
    return 0 if row is None else int(row[0])

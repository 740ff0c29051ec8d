"""The schema of all tables, and their column types.

Moments are microseconds since the epoch (UTC) in 64-bit integers; ids are UUIDs as 36-character
text; documents are JSON text. Names sort by byte value on both databases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ColumnElement,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TextClause,
    text,
)
from sqlalchemy.schema import SchemaItem

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

Id = String(36)
Moment = BigInteger()
ByteOrdered = Text().with_variant(Text(collation="C"), "postgresql")
DigestText = String(135).with_variant(String(135, collation="C"), "postgresql")
RowNumber = BigInteger().with_variant(Integer(), "sqlite")
"""Of a key: SQLite assigns numbers only to one of the exact type INTEGER."""


def table(name: str, *parts: SchemaItem | Sequence[SchemaItem], **options: bool) -> Table:
    """Return a table and its indexes; its key is the column ``id``, if no column has the word KEY.

    The names of indexes, if they have one, follow the name of the table.
    """
    items = [item for part in parts for item in (part if isinstance(part, Sequence) else [part])]
    if not any(isinstance(item, Column) and item.primary_key for item in items):
        items.insert(0, _column("id KEY", Id))
    for item in items:
        if isinstance(item, Index) and item.name is not None:
            item.name = f"{'uq' if item.unique else 'ix'}_{name}_{item.name}"
    return Table(name, metadata, *items, **options)


def columns(kind: Any, listed: str) -> list[Column[Any]]:  # noqa: ANN401 - a type or its class
    """Return columns of a type, listed as in SQL: ``a KEY, b, c NULL, d DEFAULT 0``.

    Only those with the word NULL may be null.
    """
    return [_column(each, kind) for each in listed.split(", ")]


def refers(column: str, to: str, ondelete: str | None = None) -> Column[Any]:
    """Return a column, described as in `columns`, with the id of a row of another table."""
    return _column(column, Id, ForeignKey(f"{to}.id", ondelete=ondelete))


def _column(described: str, *of: Any) -> Column[Any]:  # noqa: ANN401 - its type, a foreign key
    name, *words = described.split()
    default = text(words[-1]) if "DEFAULT" in words else None
    is_key, is_nullable = "KEY" in words, "NULL" in words
    return Column(name, *of, primary_key=is_key, nullable=is_nullable, server_default=default)


def not_negative(listed: str) -> list[CheckConstraint]:
    """Return the checks that the columns ``a, b`` are not negative."""
    return [CheckConstraint(f"{each} >= 0", name=each) for each in listed.split(", ")]


def indexes(*each: str) -> list[Index]:
    """Return indexes, each on the columns ``a, b``."""
    return [Index(None, *listed.split(", ")) for listed in each]


def named_index(
    name: str, listed: str, where: str | None = None, *, is_unique: bool = False
) -> Index:
    """Return an index on the columns ``a, b``; with a condition, of the rows alone that meet it."""
    names, condition = listed.split(", "), None if where is None else text(where)
    on_both = {"sqlite_where": condition, "postgresql_where": condition}
    return Index(name, *names, unique=is_unique, **on_both)


def unique_index(name: str, listed: str, where: str | None = None) -> Index:
    """Return an index as `named_index`, of different values."""
    return named_index(name, listed, where, is_unique=True)


def partial_index(
    name: str,
    *columns: Any,  # noqa: ANN401 - as `Index` takes them
    where: ColumnElement[bool] | TextClause,
    unique: bool = False,
) -> Index:
    """Return an index, on both databases, of the rows alone that meet a condition."""
    return Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


def foreign_key(table: str, /, ondelete: str | None = None, **columns: str) -> ForeignKeyConstraint:
    """Return a foreign key of several columns, each given with the column of `table` it names."""
    named = [f"{table}.{name}" for name in columns.values()]
    return ForeignKeyConstraint(list(columns), named, ondelete=ondelete)


def one_of(column: str, *values: str) -> CheckConstraint:
    """Return the check that a column has one of these texts."""
    listed = ", ".join(f"'{each}'" for each in values)
    return CheckConstraint(f"{column} IN ({listed})", name=column)

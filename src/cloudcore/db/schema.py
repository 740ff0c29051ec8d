"""The schema of all tables, and their column types.

Moments are microseconds since the epoch (UTC) in 64-bit integers; ids are UUIDs as 36-character
text; documents are JSON text. Names sort by byte value on both databases.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

Id = sa.String(36)
Moment = sa.BigInteger()
ByteOrdered = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
DigestText = sa.String(135).with_variant(sa.String(135, collation="C"), "postgresql")


def partial_index(
    name: str,
    *columns: Any,  # noqa: ANN401 - as `Index` takes them
    where: sa.ColumnElement[bool] | sa.TextClause,
    unique: bool = False,
) -> sa.Index:
    """Return an index of only the rows that meet the condition `where`, for both databases."""
    return sa.Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


def foreign_key(
    table: str, /, ondelete: str | None = None, **columns: str
) -> sa.ForeignKeyConstraint:
    """Return a foreign key on several columns; `columns` maps each to its column in `table`."""
    named = [f"{table}.{name}" for name in columns.values()]
    return sa.ForeignKeyConstraint(list(columns), named, ondelete=ondelete)


def one_of(column: str, *values: str) -> sa.CheckConstraint:
    """Return a check that a column has one of these values."""
    listed = ", ".join(f"'{each}'" for each in values)
    return sa.CheckConstraint(f"{column} IN ({listed})", name=column)

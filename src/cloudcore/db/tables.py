"""Declare tables: columns by type, together with their checks and indexes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.schema import SchemaItem

from cloudcore.db.schema import Id, metadata

_COLUMN: Final = re.compile(r"(\w+)( KEY)?( NULL)?(?: DEFAULT (\S+))?")
RowNumber = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""Type of a key: SQLite assigns numbers only to a key of the exact type INTEGER."""


def table(
    name: str, *parts: SchemaItem | Sequence[SchemaItem], has_rowid: bool = True
) -> sa.Table[Any]:
    """Return a table with its indexes; add the key column ``id`` if no column is marked KEY.

    Names of indexes are prefixed by ``ix_`` or ``uq_`` and the name of the table.
    """
    items = [item for part in parts for item in (part if isinstance(part, Sequence) else [part])]
    if not any(isinstance(item, sa.Column) and item.primary_key for item in items):
        items.insert(0, _column("id KEY", Id))
    for item in items:
        if isinstance(item, sa.Index) and item.name is not None:
            prefix = "uq" if item.unique else "ix"
            item.name = sa.quoted_name(f"{prefix}_{name}_{item.name}", None)
    return sa.Table(name, metadata, *items, sqlite_with_rowid=has_rowid)


def columns(kind: Any, listed: str) -> list[sa.Column[Any]]:  # noqa: ANN401 - a type or its class
    """Return columns of one type, listed as in SQL: ``a KEY, b, c NULL, d DEFAULT 0``.

    Only columns marked NULL may be null. Raise `ValueError` if `listed` has another form.
    """
    return [_column(each, kind) for each in listed.split(", ")]


def refers(column: str, to: str, ondelete: str | None = None) -> sa.Column[Any]:
    """Return a column, written as in `columns`, that refers to the id of a row of `to`."""
    return _column(column, Id, sa.ForeignKey(f"{to}.id", ondelete=ondelete))


def _column(described: str, *of: Any) -> sa.Column[Any]:  # noqa: ANN401 - its type, a foreign key
    found = _COLUMN.fullmatch(described)
    if found is None:
        raise ValueError(f"{described!r} describes no column")
    name, key, null, default = found.groups()
    return sa.Column(
        name,
        *of,
        primary_key=key is not None,
        nullable=null is not None,
        server_default=None if default is None else sa.text(default),
    )


def not_negative(listed: str) -> list[sa.CheckConstraint]:
    """Return checks that the columns, listed as ``a, b``, are not negative."""
    return [sa.CheckConstraint(f"{each} >= 0", name=each) for each in listed.split(", ")]


def indexes(*each: str) -> list[sa.Index]:
    """Return one index for each string, on the columns that it lists as ``a, b``."""
    return [sa.Index(None, *listed.split(", ")) for listed in each]


def named_index(
    name: str, listed: str, where: str | None = None, *, is_unique: bool = False
) -> sa.Index:
    """Return an index on the columns `listed` (``a, b``).

    With `where`, only rows that meet the condition are indexed.
    """
    condition = None if where is None else sa.text(where)
    return sa.Index(
        name,
        *listed.split(", "),
        unique=is_unique,
        sqlite_where=condition,
        postgresql_where=condition,
    )


def unique_index(name: str, listed: str, where: str | None = None) -> sa.Index:
    """Return a unique index; see `named_index`."""
    return named_index(name, listed, where, is_unique=True)

"""Inserting rows that give all columns, with or without minding those already there."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Table, bindparam
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.statement import Statement


def insertion(table: Table, *given: str) -> Statement:
    """Return the statement that adds a row; a row whose key is taken changes nothing.

    A column with a default takes it, unless the column is `given`.
    """
    columns: dict[str, Any] = {
        column.name: bindparam(column.name)
        for column in table.columns
        if column.server_default is None or column.name in given
    }
    return Statement(insert(table).values(columns).on_conflict_do_nothing())

"""Build `INSERT ... ON CONFLICT DO NOTHING` for all columns of a table."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Table, bindparam
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.statement import Statement


def insertion(table: Table, *given: str) -> Statement:
    """Return the statement that inserts a row, or changes nothing if its key is taken.

    Columns with a default are left out, unless `given`.
    """
    columns: dict[str, Any] = {
        column.name: bindparam(column.name)
        for column in table.columns
        if column.server_default is None or column.name in given
    }
    return Statement(insert(table).values(columns).on_conflict_do_nothing())

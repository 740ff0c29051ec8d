"""Figures of the database, at a cost that does not grow with the registry."""

from __future__ import annotations

from typing import Final

from sqlalchemy import func, literal_column, select

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from registry.metadata.tables import uploads

MOST_UPLOADS: Final = 10_000
"""Open upload sessions that are counted."""

_UPLOADS: Final = Statement(
    select(func.count()).select_from(
        select(uploads.c.expires_at)
        .where(uploads.c.expires_at > literal_column("0"))
        .limit(literal_column(str(MOST_UPLOADS)))
        .offset(literal_column("0"))
        .subquery("open")
    )
)
_SIZES: Final = (Statement(select(func.pg_database_size(func.current_database()))),)
"""In a tuple: only PostgreSQL has it."""


def open_uploads(tx: Connection) -> int:
    """Count the upload sessions, at most `MOST_UPLOADS`."""
    row = tx.row(_UPLOADS)
    return 0 if row is None else int(row[0])


def postgresql_bytes(tx: Connection) -> int:
    """Return the size of a PostgreSQL database on its disk."""
    row = tx.row(_SIZES[0])
    return 0 if row is None else int(row[0])

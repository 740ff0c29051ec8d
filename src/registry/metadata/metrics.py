"""Metrics from the database. Their cost does not grow with the registry."""

from __future__ import annotations

from typing import Final

from sqlalchemy import func, literal_column, select

from cloudcore.db.base import Connection
from cloudcore.db.rows import ZERO, count
from cloudcore.db.statement import Statement
from registry.metadata.tables import uploads

MOST_UPLOADS: Final = 10_000
"""The maximum number of open upload sessions that are counted."""

_UPLOADS: Final = Statement(
    select(func.count()).select_from(
        select(uploads.c.expires_at)
        .where(uploads.c.expires_at > ZERO)
        .limit(literal_column(str(MOST_UPLOADS)))
        .offset(ZERO)
        .subquery("open")
    )
)
_SIZES: Final = (Statement(select(func.pg_database_size(func.current_database()))),)
"""In a tuple, so that tests do not run the statement on SQLite, which lacks the function."""


def open_uploads(tx: Connection) -> int:
    """Count the open upload sessions, up to `MOST_UPLOADS`."""
    return count(tx, _UPLOADS)


def postgresql_bytes(tx: Connection) -> int:
    """Return the size of a PostgreSQL database on disk, in bytes."""
    return count(tx, _SIZES[0])

"""Open the database of a URL."""

from __future__ import annotations

from pathlib import Path
from threading import Event

from cloudcore.db.base import CommitMark, Database
from cloudcore.db.pending import Count, count_nothing

_SQLITE = "sqlite:///"
_POSTGRESQL = ("postgresql://", "postgres://")


def open_database(
    url: str,
    mark: CommitMark | None = None,
    stopping: Event | None = None,
    count: Count = count_nothing,
) -> Database:
    """Open the migrated database at `url`; call this on the event loop's thread.

    Threads and connections do not survive a fork: open the database in each process. `url` is
    ``sqlite:///relative/path``, ``sqlite:////absolute/path`` or a libpq URI
    (``postgresql://user@host/name``). Workers of a server share `mark`, through which they learn of
    each other's commits on PostgreSQL. Once `stopping` is set, calls no longer wait for a server
    that is unreachable. `count` is called with metric keys and amounts.

    Raise `Unavailable` if the database cannot be reached.
    """
    if is_postgresql(url):
        from cloudcore.db.postgresql import PostgresqlDatabase  # noqa: PLC0415 - the driver

        return PostgresqlDatabase(url, mark, stopping, count)
    from cloudcore.db.sqlite import SqliteDatabase  # noqa: PLC0415 - one driver of two

    return SqliteDatabase(sqlite_path(url), count)


def is_postgresql(url: str) -> bool:
    """Return True if a URL names a PostgreSQL database."""
    return url.startswith(_POSTGRESQL)


def sqlite_path(url: str) -> Path:
    """Return the file path in an SQLite database URL; raise `ValueError` for another URL."""
    if not url.startswith(_SQLITE):
        raise ValueError("the URL of a database begins with sqlite:/// or postgresql://")
    return Path(url.removeprefix(_SQLITE))

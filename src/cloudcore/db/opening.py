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

    Threads and connections do not survive a fork: open it in each process. `url` is
    ``sqlite:///relative/path``, ``sqlite:////absolute/path`` or a libpq URI
    (``postgresql://user@host/name``). `mark` is what the workers of a server have in common: on
    PostgreSQL, they know of each other's commits by it. Once `stopping` is set, a server that is
    away is waited for no more. `count` is called with keys and amounts of what is counted.

    Raise `Unavailable` if the database cannot be reached.
    """
    if is_postgresql(url):
        from cloudcore.db.postgresql import PostgresqlDatabase  # noqa: PLC0415 - the driver

        return PostgresqlDatabase(url, mark, stopping, count)
    from cloudcore.db.sqlite import SqliteDatabase  # noqa: PLC0415 - one driver of two

    return SqliteDatabase(sqlite_path(url), count)


def is_postgresql(url: str) -> bool:
    """Return True if a URL is that of a PostgreSQL database."""
    return url.startswith(_POSTGRESQL)


def sqlite_path(url: str) -> Path:
    """Return the path of the file in the URL of an SQLite database."""
    if not url.startswith(_SQLITE):
        raise ValueError("the URL of a database begins with sqlite:/// or postgresql://")
    return Path(url.removeprefix(_SQLITE))

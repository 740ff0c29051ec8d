"""Which database a URL names, and how to open it."""

from __future__ import annotations

from pathlib import Path

from cloudcore.db.base import Database

_SQLITE = "sqlite:///"
_POSTGRESQL = ("postgresql://", "postgres://")


def open_database(url: str) -> Database:
    """Open the migrated database that `url` names, on the event loop's thread.

    Threads and connections do not survive a fork: each process opens its own.
    `url` is ``sqlite:///relative/path``, ``sqlite:////absolute/path`` or a libpq URI
    (``postgresql://user@host/name``).

    Raises:
        Unavailable: it cannot be reached now.

    """
    if is_postgresql(url):
        from cloudcore.db.postgresql import PostgresqlDatabase  # noqa: PLC0415 - the driver

        return PostgresqlDatabase(url)
    from cloudcore.db.sqlite import SqliteDatabase  # noqa: PLC0415 - one driver of two

    return SqliteDatabase(sqlite_path(url))


def is_postgresql(url: str) -> bool:
    """Tell whether a URL names a PostgreSQL database."""
    return url.startswith(_POSTGRESQL)


def sqlite_path(url: str) -> Path:
    """Return the file that the URL of an SQLite database names."""
    if not url.startswith(_SQLITE):
        raise ValueError("the URL of a database begins with sqlite:/// or postgresql://")
    return Path(url.removeprefix(_SQLITE))

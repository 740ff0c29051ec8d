"""Open the database of a URL; count its changes, and the time that their callers wait."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Concatenate, Final

from cloudcore.db.base import Connection, Database, P, T
from cloudcore.errors import Unavailable

_BYTES: Final = 8


class CommitMark:
    """A number that a process and those forked from it share; make it before forking them.

    Each change gives it a random value, so whoever saw it before sees that it is another one (but
    once in 2^64), however many processes change it at a time and wherever one of them dies. There
    is no lock and no system call in reading it; a store of eight aligned bytes is never seen half.
    """

    def __init__(self) -> None:
        self._cell = memoryview(mmap.mmap(-1, _BYTES)).cast("Q")

    def change(self) -> None:
        """Give the mark a value that it never had."""
        self._cell[0] = int.from_bytes(os.urandom(_BYTES), "little")

    def value(self) -> int:
        """Return the present value."""
        return self._cell[0]


_SQLITE = "sqlite:///"
_POSTGRESQL = ("postgresql://", "postgres://")


def open_database(
    url: str, mark: CommitMark | None = None, stopping: Event | None = None
) -> Database:
    """Open the migrated database at `url`; call this on the event loop's thread.

    Threads and connections do not survive a fork: open it in each process.
    `url` is ``sqlite:///relative/path``, ``sqlite:////absolute/path`` or a libpq URI
    (``postgresql://user@host/name``). `mark` is what the workers of a server have in common: on
    PostgreSQL, they know of each other's commits by it. Once `stopping` is set, a server that is
    away is waited for no more.

    Raises:
        Unavailable: the database cannot be reached.

    """
    if is_postgresql(url):
        from cloudcore.db.postgresql import PostgresqlDatabase  # noqa: PLC0415 - the driver

        return PostgresqlDatabase(url, mark, stopping)
    from cloudcore.db.sqlite import SqliteDatabase  # noqa: PLC0415 - one driver of two

    return SqliteDatabase(sqlite_path(url))


def is_postgresql(url: str) -> bool:
    """Return True if a URL is that of a PostgreSQL database."""
    return url.startswith(_POSTGRESQL)


def sqlite_path(url: str) -> Path:
    """Return the path of the file in the URL of an SQLite database."""
    if not url.startswith(_SQLITE):
        raise ValueError("the URL of a database begins with sqlite:/// or postgresql://")
    return Path(url.removeprefix(_SQLITE))


CHANGES = "database.changes"
FAILURES = "database.failures"
MICROSECONDS = "database.microseconds"
"""Keys of what is counted: changes that ended, those of them that the database could not make, and
the time between call and result."""


class CountedDatabase:
    """Counts the changes of another database."""

    def __init__(self, database: Database, count: Callable[[str, int], None]) -> None:
        """Call `count` with a key and an amount."""
        self._database = database
        self._count = count

    async def read(
        self, query: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `query` (`Database.read`)."""
        return await self._database.read(query, *args, **kwargs)

    async def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `change`, and count it (`Database.write`)."""
        return await self._counted(self._database.write(change, *args, **kwargs))

    async def write_relaxed(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `change`, and count it (`Database.write_relaxed`)."""
        return await self._counted(self._database.write_relaxed(change, *args, **kwargs))

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` after commits (`Database.listen`)."""
        self._database.listen(listener)

    def version(self) -> int | None:
        """Return the version (`Database.version`)."""
        return self._database.version()

    async def close(self) -> None:
        """Close the database."""
        await self._database.close()

    async def _counted(self, running: Awaitable[T]) -> T:
        begun = time.perf_counter()
        try:
            return await running
        except Unavailable:
            self._count(FAILURES, 1)
            raise
        finally:
            self._count(CHANGES, 1)
            self._count(MICROSECONDS, int((time.perf_counter() - begun) * 1e6))


if TYPE_CHECKING:
    _: type[Database] = CountedDatabase

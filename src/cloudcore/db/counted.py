"""A database that counts its changes, and the time that their callers wait."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Concatenate

from cloudcore.db.base import Connection, Database, P, T
from cloudcore.errors import Unavailable

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

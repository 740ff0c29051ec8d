"""The database of a request that changes something: each write checks and records its change.

Both happen in the transaction of the change. So an operation cannot forget the check that its route
declares, nor its event in the audit log; a change that is rolled back has no event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate

from cloudcore.db.base import Connection, Database, P, T


class AuditedDatabase:
    """Checks and records the first write of a request; relaxed writes are bookkeeping."""

    def __init__(
        self, database: Database, begin: Callable[[], None], conclude: Callable[[Connection], None]
    ) -> None:
        """Call `begin` before each try of the first write to `database`, and `conclude` in it."""
        self._database = database
        self._begin = begin
        self._conclude = conclude
        self._is_concluded = False

    async def read(
        self, query: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a query; see `Database.read`."""
        return await self._database.read(query, *args, **kwargs)

    async def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a change, check and record it; see `Database.write`."""
        if self._is_concluded:
            return await self._database.write(change, *args, **kwargs)

        def concluded(tx: Connection) -> T:
            self._begin()
            result = change(tx, *args, **kwargs)
            self._conclude(tx)
            return result

        result = await self._database.write(concluded)
        self._is_concluded = True
        return result

    async def write_relaxed(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a change without an audit event; see `Database.write_relaxed`."""
        return await self._database.write_relaxed(change, *args, **kwargs)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` after announced changes; see `Database.listen`."""
        self._database.listen(listener)

    def version(self) -> int | None:
        """Return the version; see `Database.version`."""
        return self._database.version()

    async def close(self) -> None:
        """Close the database."""
        await self._database.close()

"""A database whose writes record the change they make, in the same transaction.

It is the database of a request that changes something. So an operation cannot forget its event in
the audit log, and one that is rolled back has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate

from cloudcore.db.base import Connection, Database, P, T


class AuditedDatabase:
    """Records one event with the first write of a request; relaxed writes are bookkeeping."""

    def __init__(
        self, database: Database, begin: Callable[[], None], record: Callable[[Connection], None]
    ) -> None:
        """Record the changes of `database`; `begin` is called before each try of the first one."""
        self._database = database
        self._begin = begin
        self._record = record
        self._is_recorded = False

    async def read(
        self, query: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a query; see `Database.read`."""
        return await self._database.read(query, *args, **kwargs)

    async def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a change and record it; see `Database.write`."""
        if self._is_recorded:
            return await self._database.write(change, *args, **kwargs)

        def recorded(tx: Connection) -> T:
            self._begin()
            result = change(tx, *args, **kwargs)
            self._record(tx)
            return result

        result = await self._database.write(recorded)
        self._is_recorded = True
        return result

    async def write_relaxed(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a change that is no event; see `Database.write_relaxed`."""
        return await self._database.write_relaxed(change, *args, **kwargs)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` after announced changes; see `Database.listen`."""
        self._database.listen(listener)

    async def close(self) -> None:
        """Close the database."""
        await self._database.close()

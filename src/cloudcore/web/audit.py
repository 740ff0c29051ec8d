"""The database of a request that changes something: its first write is checked and audited.

Both happen in the write's transaction. So an operation cannot omit the check that its route
declares, nor its audit event; a change that is rolled back has no event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate

from cloudcore.db.base import Connection, Database, P, T


class AuditedDatabase:
    """Checks and audits the first write of a request; relaxed writes are only bookkeeping."""

    def __init__(
        self, database: Database, begin: Callable[[], None], conclude: Callable[[Connection], None]
    ) -> None:
        """Wrap the database of one request.

        In the request's first write, `begin` is called before each attempt, and `conclude` at the
        end of the transaction.
        """
        self._database = database
        self._begin = begin
        self._conclude = conclude
        self._is_concluded = False
        self.read = database.read
        self.write_relaxed = database.write_relaxed
        self.listen, self.version, self.close = database.listen, database.version, database.close

    async def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a change, as `Database.write` does; the first one is also checked and audited."""
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

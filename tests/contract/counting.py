"""Another process that counts: ``python -m tests.contract.counting URL HANDLE TIMES``."""

from __future__ import annotations

import asyncio
import sys

from sqlalchemy import bindparam, literal_column, select

from cloudcore.db.base import Connection, Database
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import accounts
from tests.databases import with_database

_here = accounts.c.handle == bindparam("wanted")
COUNT = Statement(
    accounts.update().where(_here).values(created_at=accounts.c.created_at + literal_column("1"))
)
READ = Statement(select(accounts.c.created_at).where(_here))


def main(url: str, handle: str, times: str) -> None:
    """Count up, eight callers at once, never reading less than was written before."""

    def count(connection: Connection) -> int:
        connection.execute(COUNT, wanted=handle)
        return read(connection)

    def read(connection: Connection) -> int:
        row = connection.row(READ, wanted=handle)
        assert row is not None
        return int(row[0])

    async def caller(database: Database, own: list[int]) -> None:
        while own:
            own.pop()
            written = await database.write(count)
            assert await database.read(read) >= written

    async def scenario(database: Database) -> None:
        own = list(range(int(times)))
        await asyncio.gather(*(caller(database, own) for _ in range(8)))

    with_database(url, scenario)


if __name__ == "__main__":
    main(*sys.argv[1:])

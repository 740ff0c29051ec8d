"""A database that counts the statements of each request, and keeps what they are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Concatenate

from cloudcore.db.base import Connection, Database, P, T
from cloudcore.db.statement import Statement
from tests.dying import Kind, PassingConnection, PassingDatabase
from tests.inprocess import Registry, open_registry
from tests.memory_store import MemoryStore


class CountingConnection(PassingConnection):
    """Notes the statements that it passes on."""

    def __init__(self, connection: Connection, seen: list[Statement]) -> None:
        super().__init__(connection)
        self._seen = seen

    def before(self, statement: Statement, _parameters: object) -> None:
        self._seen.append(statement)


class CountingDatabase(PassingDatabase):
    """Counts what it passes on.

    `seen` holds the statements, `reads` and `changes` are the numbers of transactions; `durable` is
    that of the changes that wait for the disk.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.seen: list[Statement] = []
        self.reads = 0
        self.changes = 0
        self.durable = 0

    def start(self) -> None:
        """Count from nothing."""
        self.seen.clear()
        self.reads = 0
        self.changes = 0
        self.durable = 0

    @property
    def calls(self) -> tuple[int, int]:
        """Return how many reads and durable changes there were; fail if there were others."""
        assert self.changes == self.durable
        return self.reads, self.durable

    async def before(self, kind: Kind, _call: object) -> None:
        self.reads += kind == "read"
        self.changes += kind != "read"
        self.durable += kind == "write"

    def meddled(
        self, call: Callable[Concatenate[Connection, P], T]
    ) -> Callable[Concatenate[Connection, P], T]:
        def counted(connection: Connection, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return call(CountingConnection(connection, self.seen), *args, **kwargs)

        return counted


@asynccontextmanager
async def open_counting(url: str) -> AsyncIterator[tuple[Registry, CountingDatabase]]:
    """Open a registry over a store in memory and a database that counts."""
    counted: list[CountingDatabase] = []

    def around(database: Database) -> Database:
        counted.append(CountingDatabase(database))
        return counted[0]

    async with open_registry(url, MemoryStore(), around=around) as registry:
        yield registry, counted[0]

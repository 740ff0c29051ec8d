"""A database that notes each statement that runs, with what is bound to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Concatenate

from cloudcore.db.base import Connection, Database, P, Row, T
from cloudcore.db.statement import Statement


@dataclass
class Execution:
    """A statement that ran, and the texts bound to it."""

    statement: Statement
    texts: frozenset[str]


class _NotingConnection:
    def __init__(self, connection: Connection, noted: list[Execution]) -> None:
        self._connection = connection
        self._noted = noted

    def _note(self, statement: Statement, parameters: dict[str, object]) -> None:
        texts = frozenset(value for value in parameters.values() if isinstance(value, str))
        self._noted.append(Execution(statement, texts))

    @property
    def joins_changes(self) -> bool:
        return self._connection.joins_changes

    def row(self, statement: Statement, /, **parameters: object) -> Row | None:
        self._note(statement, parameters)
        return self._connection.row(statement, **parameters)

    def rows(self, statement: Statement, /, **parameters: object) -> Sequence[Row]:
        self._note(statement, parameters)
        return self._connection.rows(statement, **parameters)

    def execute(self, statement: Statement, /, **parameters: object) -> int:
        self._note(statement, parameters)
        return self._connection.execute(statement, **parameters)

    def announce(self) -> None:
        self._connection.announce()


class NotingDatabase:
    """Notes every statement that it passes on."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.noted: list[Execution] = []

    def _noting(
        self, call: Callable[Concatenate[Connection, P], T]
    ) -> Callable[Concatenate[Connection, P], T]:
        def noted(connection: Connection, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return call(_NotingConnection(connection, self.noted), *args, **kwargs)

        return noted

    async def read(
        self, query: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Read."""
        return await self._database.read(self._noting(query), *args, **kwargs)

    async def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Write."""
        return await self._database.write(self._noting(change), *args, **kwargs)

    async def write_relaxed(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Write."""
        return await self._database.write_relaxed(self._noting(change), *args, **kwargs)

    def listen(self, listener: Callable[[], None]) -> None:
        """Listen."""
        self._database.listen(listener)

    def version(self) -> int | None:
        """Return the version."""
        return self._database.version()

    async def close(self) -> None:
        """Close."""
        await self._database.close()

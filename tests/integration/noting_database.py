"""A database that notes each statement that runs, with what is bound to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Concatenate

from cloudcore.db.base import Connection, Database, P, Row, T
from cloudcore.db.statement import Statement
from tests.dying import PassingDatabase


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


class NotingDatabase(PassingDatabase):
    """Notes every statement that it passes on."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.noted: list[Execution] = []

    def meddled(
        self, call: Callable[Concatenate[Connection, P], T]
    ) -> Callable[Concatenate[Connection, P], T]:
        def noted(connection: Connection, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return call(_NotingConnection(connection, self.noted), *args, **kwargs)

        return noted

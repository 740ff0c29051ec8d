"""A database that notes each statement that runs, with what is bound to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Concatenate

from cloudcore.db.base import Connection, Database, P, T
from cloudcore.db.statement import Statement
from tests.dying import PassingConnection, PassingDatabase


@dataclass
class Execution:
    """A statement that ran, and the texts bound to it."""

    statement: Statement
    texts: frozenset[str]


class _NotingConnection(PassingConnection):
    def __init__(self, connection: Connection, noted: list[Execution]) -> None:
        super().__init__(connection)
        self._noted = noted

    def before(self, statement: Statement, parameters: Mapping[str, object]) -> None:
        texts = frozenset(value for value in parameters.values() if isinstance(value, str))
        self._noted.append(Execution(statement, texts))


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

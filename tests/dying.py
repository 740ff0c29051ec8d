"""Databases with a flaw: one that passes everything on, and one whose process dies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Concatenate, Literal

from cloudcore.db.base import Connection, Database, P, Row, T
from cloudcore.db.statement import Statement

Moment = Literal["before", "during", "after"]


class Death(BaseException):
    """The process is no more: no code of ours sees this as an error to answer."""


Kind = Literal["read", "write", "write_relaxed"]


class PassingDatabase:
    """Passes everything on to another database; what inherits from it meddles with its calls."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def before(self, kind: Kind, call: Callable[..., object]) -> None:
        """Do something before a query or a change runs, or raise what it fails with."""

    async def after(self, kind: Kind, call: Callable[..., object], result: object) -> None:
        """Do something after a query has run, or a change was committed."""

    def meddled(
        self, call: Callable[Concatenate[Connection, P], T]
    ) -> Callable[Concatenate[Connection, P], T]:
        """Return what runs in the place of a query or a change."""
        return call

    async def read(
        self, query: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        await self.before("read", query)
        result = await self._database.read(self.meddled(query), *args, **kwargs)
        await self.after("read", query, result)
        return result

    async def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        await self.before("write", change)
        result = await self._database.write(self.meddled(change), *args, **kwargs)
        await self.after("write", change, result)
        return result

    async def write_relaxed(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        await self.before("write_relaxed", change)
        result = await self._database.write_relaxed(self.meddled(change), *args, **kwargs)
        await self.after("write_relaxed", change, result)
        return result

    def listen(self, listener: Callable[[], None]) -> None:
        self._database.listen(listener)

    def version(self) -> int | None:
        return self._database.version()

    async def close(self) -> None:
        await self._database.close()


class PassingConnection:
    """Passes the statements of a query or a change on."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def before(self, statement: Statement, parameters: Mapping[str, object]) -> None:
        """Do something before a statement runs."""

    @property
    def joins_changes(self) -> bool:
        return self._connection.joins_changes

    def row(self, statement: Statement, /, **parameters: object) -> Row | None:
        self.before(statement, parameters)
        return self._connection.row(statement, **parameters)

    def rows(self, statement: Statement, /, **parameters: object) -> Sequence[Row]:
        self.before(statement, parameters)
        return self._connection.rows(statement, **parameters)

    def execute(self, statement: Statement, /, **parameters: object) -> int:
        self.before(statement, parameters)
        return self._connection.execute(statement, **parameters)

    def announce(self) -> None:
        self._connection.announce()


class DyingDatabase(PassingDatabase):
    """Dies at a chosen write, and stays dead.

    `during` is after the change ran and before its transaction ended.
    """

    def __init__(self, database: Database, fatal_write: int, moment: Moment) -> None:
        super().__init__(database)
        self._left = fatal_write
        self._moment: Moment = moment
        self._is_dead = False

    async def before(self, kind: Kind, _call: object) -> None:
        if self._is_dead:
            raise Death
        if kind != "read":
            self._left -= 1
            self._is_dead = self._left == 0
            if self._is_dead and self._moment == "before":
                raise Death

    def meddled(
        self, call: Callable[Concatenate[Connection, P], T]
    ) -> Callable[Concatenate[Connection, P], T]:
        def unfinished(connection: Connection, /, *args: P.args, **kwargs: P.kwargs) -> T:
            call(connection, *args, **kwargs)
            raise Death

        return unfinished if self._is_dead and self._moment == "during" else call

    async def after(self, _kind: Kind, _call: object, _result: object) -> None:
        if self._is_dead:
            raise Death

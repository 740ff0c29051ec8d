"""A database and a store whose every call is a step of an `Interleaving`."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Concatenate

from cloudcore.db.base import Connection, P, T
from cloudcore.db.sqlite_connection import SqliteConnection
from cloudcore.db.statement import Statement
from registry.blobstore.base import BlobStore, Staged
from registry.blobstore.sweeper import Deleted
from tests.dying import PassingConnection
from tests.memory_store import MemoryStore
from tests.property.interleaving import Died, Interleaving


class OneConnection:
    """A SQLite database in memory, behind the seam, whose content can be taken back.

    Changes come one after another, each whole, as the database's writer makes them; between two
    statements of a query another's change may be committed, as between two of the reader's.
    """

    def __init__(self, original: Path) -> None:
        self.raw = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, cached_statements=1024
        )
        with closing(sqlite3.connect(original)) as file:
            file.backup(self.raw)
        self.raw.execute("PRAGMA foreign_keys=ON")
        self._connection = SqliteConnection(self.raw)
        self._stepping = _SteppingConnection(self._connection, self)
        self.interleaving: Interleaving | None = None

    def interleave(self, rng: random.Random) -> Interleaving:
        """Return a run whose tasks may call."""
        self.interleaving = Interleaving(rng)
        return self.interleaving

    def step(self, what: str) -> None:
        """Take a step of the run there is."""
        if self.interleaving is not None:
            self.interleaving.step(what)

    def begin(self) -> None:
        """Begin something that is taken back by `undo`."""
        self.raw.execute("BEGIN")

    def undo(self) -> None:
        """Take everything back since `begin`."""
        self.raw.execute("ROLLBACK")

    def query(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run SQL of a test's own."""
        return self.raw.execute(sql, parameters).fetchall()

    async def read(
        self, query: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Read, with a step before each statement."""
        return query(self._stepping, *args, **kwargs)

    async def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Write, with a step before and one between the commit and the answer."""
        name = getattr(change, "__name__", "change")
        self.step(name)
        self.raw.execute("SAVEPOINT change")
        try:
            result = self._connection.run(lambda tx: change(tx, *args, **kwargs))
        except BaseException:
            self.raw.execute("ROLLBACK TO change")
            raise
        finally:
            self.raw.execute("RELEASE change")
        self.step(f"after {name}")
        return result

    async def write_relaxed(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Write as ever."""
        return await self.write(change, *args, **kwargs)

    def listen(self, listener: Callable[[], None]) -> None:
        """Listen to nothing: there are no jobs here."""

    def version(self) -> int | None:
        """Return None: it is not known."""
        return None

    async def close(self) -> None:
        """Close."""
        self.raw.close()


class _SteppingConnection(PassingConnection):
    """A connection on which other tasks come between statements."""

    def __init__(self, connection: Connection, database: OneConnection) -> None:
        super().__init__(connection)
        self._database = database

    def before(self, _statement: Statement, _parameters: object) -> None:
        self._database.step("read")

    def execute(self, statement: Statement, /, **parameters: object) -> int:
        return self._connection.execute(statement, **parameters)

    def announce(self) -> None:
        raise AssertionError("a query announces nothing")


class SteppedStore:
    """A store whose every call is a step; a dead process's calls do nothing.

    A list is a step after each of what it lists.
    """

    def __init__(self, store: BlobStore, step: Callable[[str], None]) -> None:
        self._store = store
        self.step = step

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any method of a store
        call = getattr(self._store, name)
        if name in ("check_room", "partitions", "scan_alone"):
            return call
        if name in ("stage", "resume", "stage_copy"):
            return partial(self._stage, name, call)
        return partial(self._list if name.startswith("list_") else self._awaited, name, call)

    async def _awaited(
        self,
        name: str,
        call: Callable[..., Awaitable[T]],
        /,
        *given: object,
        **named: object,
    ) -> T:
        self.step(name)
        return await call(*given, **named)

    async def _stage(
        self,
        name: str,
        call: Callable[..., Awaitable[Staged]],
        /,
        *given: object,
        **named: object,
    ) -> _InterleavedStaged:
        self.step(name)
        return _InterleavedStaged(await call(*given, **named), self.step)

    async def _list(
        self,
        name: str,
        call: Callable[..., AsyncIterator[T]],
        /,
        *given: object,
    ) -> AsyncIterator[T]:
        async for found in call(*given):
            yield found
            self.step(name)

    def check_cached(self, _object_id: str, _stored_size: int) -> bool:
        """Return False: each check is a step."""
        return False

    async def delete(self, object_ids: Sequence[str]) -> Deleted:
        """Delete, with a step before each."""
        for object_id in object_ids:
            self.step("delete")
            await self._store.delete([object_id])
        return Deleted(object_ids)


class InterleavedStore(SteppedStore):
    """A `SteppedStore` in memory."""

    def __init__(self, step: Callable[[str], None]) -> None:
        self.bytes = MemoryStore()
        super().__init__(self.bytes, step)


class _InterleavedStaged:
    """Staged bytes of a `SteppedStore`."""

    def __init__(self, staged: Staged, step: Callable[[str], None]) -> None:
        self._staged = staged
        self._step = step

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any method of staged bytes
        found = getattr(self._staged, name)
        if name in ("offset", "write"):  # nobody else sees what is written
            return found

        def stepped(*given: object, **named: object) -> object:
            self._step(name)
            return found(*given, **named)

        return stepped

    async def aclose(self) -> None:
        """Close; also the dead let go."""
        with suppress(Died):
            self._step("close")
        await self._staged.aclose()

"""A database and a store whose every call is a step of an `Interleaving`."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, Final, cast

from cloudcore.db.base import Connection, P, T
from cloudcore.db.sqlite_connection import SqliteConnection
from cloudcore.db.statement import Statement
from registry.blobstore.base import DataKey, Deleted, Stored
from registry.blobstore.store import BlobStore, Staged
from registry.oci.digest import Digest
from tests.dying import PassingConnection
from tests.fault.seams import passed_on
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
    """A connection of queries on which other tasks come between statements."""

    def __init__(self, connection: Connection, database: OneConnection) -> None:
        super().__init__(connection)
        self._database = database

    def before(self, _statement: Statement, _parameters: object) -> None:
        self._database.step("read")

    def announce(self) -> None:
        raise AssertionError("a query announces nothing")


class SteppedStore:
    """A store whose every call is a step, and each item of a list another."""

    STEPS: Final = frozenset(
        {
            *("open", "open_staged", "open_stored", "check", "check_cached"),
            *("stage", "resume", "stage_copy", "resumable", "discard", "remove_duplicate"),
            *("list_objects", "list_ids", "list_staged", "list_orphans"),
            *("set_aside", "take_back", "delete", "delete_orphan"),
            *("generation", "save_generation"),
        }
    )
    PASSED_ON: Final = frozenset({"check_room", "partitions", "scan_alone"})

    def __init__(self, store: BlobStore, step: Callable[[str], None]) -> None:
        self._store = store
        self.step = step

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any method of a store
        passed = passed_on(self._store, name, self.STEPS | self.PASSED_ON)
        if name in self.PASSED_ON:
            return passed
        if name.startswith("list_"):
            return partial(self._listed, name, passed)
        return partial(self._called, name, passed)

    async def _called(
        self, name: str, call: Callable[..., Awaitable[T]], *arguments: object, **options: object
    ) -> T:
        self.step(name)
        return await call(*arguments, **options)

    async def _listed(
        self,
        name: str,
        call: Callable[..., AsyncIterator[T]],
        *arguments: object,
        **options: object,
    ) -> AsyncIterator[T]:
        async for found in call(*arguments, **options):
            yield found
            self.step(name)

    def check_cached(self, _object_id: str, _stored_size: int) -> bool:
        """Return False: each check is a step."""
        return False

    async def stage(self, *arguments: Any, **options: Any) -> Staged:  # noqa: ANN401 - as the store
        self.step("stage")
        return self._stepped(await self._store.stage(*arguments, **options))

    async def resume(self, upload_id: str) -> Staged:
        self.step("resume")
        return self._stepped(await self._store.resume(upload_id))

    async def stage_copy(self, *arguments: Any, **options: Any) -> Staged:  # noqa: ANN401 - as above
        self.step("stage_copy")
        return self._stepped(await self._store.stage_copy(*arguments, **options))

    def _stepped(self, staged: Staged) -> Staged:
        return cast("Staged", InterleavedStaged(staged, self.step))

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


class InterleavedStaged:
    """Staged bytes of an `InterleavedStore`; to write is no step, for nobody else sees them."""

    STEPS: Final = frozenset({"rewind", "flush", "commit", "discard", "aclose"})
    PASSED_ON: Final = frozenset({"offset", "write"})

    def __init__(self, staged: Staged, step: Callable[[str], None]) -> None:
        self._staged = staged
        self._step = step

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of staged bytes
        return passed_on(self._staged, name, self.PASSED_ON)

    async def rewind(self, *arguments: Any, data_key: DataKey | None) -> None:  # noqa: ANN401
        self._step("rewind")
        await self._staged.rewind(*arguments, data_key=data_key)

    def flush(self) -> Mapping[str, str]:
        self._step("flush")
        return self._staged.flush()

    def commit(self, expected: Digest | None) -> Stored:
        self._step("commit")
        return self._staged.commit(expected)

    async def discard(self) -> None:
        self._step("discard")
        await self._staged.discard()

    async def aclose(self) -> None:
        """Close; also the dead let go."""
        with suppress(Died):
            self._step("close")
        await self._staged.aclose()

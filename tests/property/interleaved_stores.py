"""A database and a store whose every call is a step of an `Interleaving`."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, closing, suppress
from pathlib import Path
from typing import Any, Concatenate

from cloudcore.db.base import Connection, P, Row, T
from cloudcore.db.sqlite_connection import SqliteConnection
from cloudcore.db.statement import Statement
from registry.blobstore.base import BlobStore, DataKey, OpenObject, Staged, Stored
from registry.blobstore.sweeper import Deleted, ListedBytes, Orphan
from registry.oci.digest import Digest
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


class _SteppingConnection:
    """A connection on which other tasks come between statements."""

    def __init__(self, connection: Connection, database: OneConnection) -> None:
        self._connection = connection
        self._database = database

    @property
    def joins_changes(self) -> bool:
        return self._connection.joins_changes

    def row(self, statement: Statement, /, **parameters: object) -> Row | None:
        self._database.step("read")
        return self._connection.row(statement, **parameters)

    def rows(self, statement: Statement, /, **parameters: object) -> Sequence[Row]:
        self._database.step("read")
        return self._connection.rows(statement, **parameters)

    def execute(self, statement: Statement, /, **parameters: object) -> int:
        return self._connection.execute(statement, **parameters)

    def announce(self) -> None:
        raise AssertionError("a query announces nothing")


class SteppedStore:
    """A store whose every call is a step; a dead process's calls do nothing."""

    def __init__(self, store: BlobStore, step: Callable[[str], None]) -> None:
        self._store = store
        self.step = step

    async def open(
        self, object_id: str, size: int | None = None, data_key: DataKey | None = None
    ) -> OpenObject:
        """Open, a step after the row was read."""
        self.step("open")
        return await self._store.open(object_id, size, data_key)

    async def open_staged(self, upload_id: str, data_key: DataKey | None = None) -> OpenObject:
        """Open staged bytes."""
        self.step("open_staged")
        return await self._store.open_staged(upload_id, data_key)

    async def open_stored(self, object_id: str, stored_size: int) -> OpenObject:
        """Open the stored bytes, a step after the row was read."""
        self.step("open_stored")
        return await self._store.open_stored(object_id, stored_size)

    async def check(self, object_id: str, stored_size: int) -> None:
        """Check, a step after the row was read."""
        self.step("check")
        await self._store.check(object_id, stored_size)

    def check_cached(self, object_id: str, stored_size: int) -> bool:
        """Return False: each check is a step."""
        return False

    async def stage(
        self,
        upload_id: str,
        data_key: DataKey | None,
        algorithm: str | None = None,
        *,
        is_fresh: bool = False,
    ) -> Staged:
        """Stage."""
        self.step("stage")
        return InterleavedStaged(
            await self._store.stage(upload_id, data_key, algorithm, is_fresh=is_fresh), self.step
        )

    async def resume(self, upload_id: str) -> Staged:
        """Resume."""
        self.step("resume")
        return InterleavedStaged(await self._store.resume(upload_id), self.step)

    async def stage_copy(
        self,
        upload_id: str,
        source_id: str,
        size: int,
        *,
        data_key: DataKey | None,
        source_key: DataKey | None = None,
    ) -> Staged:
        """Stage a copy."""
        self.step("stage_copy")
        staged = await self._store.stage_copy(
            upload_id, source_id, size, data_key=data_key, source_key=source_key
        )
        return InterleavedStaged(staged, self.step)

    async def resumable(self, upload_id: str, received: int, *, is_sealed: bool = False) -> int:
        """Return from where an upload can go on."""
        self.step("resumable")
        return await self._store.resumable(upload_id, received, is_sealed=is_sealed)

    async def discard(self, upload_id: str) -> None:
        """Discard."""
        self.step("discard")
        await self._store.discard(upload_id)

    async def check_room(self) -> None:
        """Check the room."""
        await self._store.check_room()

    async def remove_duplicate(self, object_id: str) -> None:
        """Remove a duplicate."""
        self.step("remove_duplicate")
        await self._store.remove_duplicate(object_id)

    def partitions(self) -> Sequence[str]:
        """Return the names of the partitions."""
        return self._store.partitions()

    async def list_objects(self, partition: str | None = None) -> AsyncIterator[ListedBytes]:
        """List objects, with a step after each."""
        async for found in self._store.list_objects(partition):
            yield found
            self.step("list_objects")

    async def list_staged(self) -> AsyncIterator[ListedBytes]:
        """List what is staged, with a step after each."""
        async for found in self._store.list_staged():
            yield found
            self.step("list_staged")

    async def list_ids(self, partition: str) -> AsyncIterator[str]:
        """List the ids of objects, with a step after each."""
        async for found in self._store.list_ids(partition):
            yield found
            self.step("list_ids")

    async def set_aside(self, object_id: str, moment: int, *, staged_too: bool = True) -> bool:
        """Set aside."""
        self.step("set_aside")
        return await self._store.set_aside(object_id, moment, staged_too=staged_too)

    async def list_orphans(self) -> AsyncIterator[Orphan]:
        """List orphans, with a step after each."""
        async for orphan in self._store.list_orphans():
            yield orphan
            self.step("list_orphans")

    async def take_back(self, object_id: str) -> bool:
        """Take back."""
        self.step("take_back")
        return await self._store.take_back(object_id)

    async def delete_orphan(self, orphan: Orphan) -> None:
        """Delete an orphan."""
        self.step("delete_orphan")
        await self._store.delete_orphan(orphan)

    def scan_alone(self) -> AbstractAsyncContextManager[bool]:
        """Scan alone."""
        return self._store.scan_alone()

    async def generation(self) -> str | None:
        """Return the generation."""
        self.step("generation")
        return await self._store.generation()

    async def note_generation(self, generation: str) -> None:
        """Note a generation."""
        self.step("note_generation")
        await self._store.note_generation(generation)

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


class InterleavedStaged(Staged):
    """Staged bytes of an `InterleavedStore`."""

    def __init__(self, staged: Staged, step: Callable[[str], None]) -> None:
        self._staged = staged
        self._step = step

    @property
    def offset(self) -> int:
        """Return how many bytes are staged."""
        return self._staged.offset

    async def rewind(
        self,
        offset: int,
        digests: Mapping[str, str] | None = None,
        algorithm: str | None = None,
        *,
        data_key: DataKey | None,
    ) -> None:
        """Rewind."""
        self._step("rewind")
        await self._staged.rewind(offset, digests, algorithm, data_key=data_key)

    def write(self, view: memoryview, /) -> None:
        """Write: no step, for nobody else sees these bytes."""
        self._staged.write(view)

    def flush(self) -> Mapping[str, str]:
        """Flush."""
        self._step("flush")
        return self._staged.flush()

    def commit(self, expected: Digest | None) -> Stored:
        """Commit."""
        self._step("commit")
        return self._staged.commit(expected)

    async def discard(self) -> None:
        """Discard."""
        self._step("discard")
        await self._staged.discard()

    async def aclose(self) -> None:
        """Close; also the dead let go."""
        with suppress(Died):
            self._step("close")
        await self._staged.aclose()


_: type[BlobStore] = InterleavedStore

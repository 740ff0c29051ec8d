"""A database and a store whose every call is a step of an `Interleaving`."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from typing import Any, Concatenate

from cloudcore.db.base import Connection, P, Row, T
from cloudcore.db.sqlite import SqliteConnection
from cloudcore.db.statement import Statement
from registry.blobstore.base import BlobStore, Orphan, Staged, Stored, StoredObject, StoredRange
from registry.blobstore.memory import MemoryStore
from registry.oci.digest import Digest
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

    async def close(self) -> None:
        """Close."""
        self.raw.close()


class _SteppingConnection:
    """A connection on which other tasks come between statements."""

    def __init__(self, connection: Connection, database: OneConnection) -> None:
        self._connection = connection
        self._database = database

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


class InterleavedStore:
    """A store in memory whose every call is a step; a dead process's calls do nothing."""

    def __init__(self, step: Callable[[str], None]) -> None:
        self.bytes = MemoryStore()
        self.step = step

    def open(
        self, object_id: str, start: int = 0, stop: int | None = None, size: int | None = None
    ) -> StoredRange:
        """Open, a step after the row was read."""
        self.step("open")
        return self.bytes.open(object_id, start, stop, size)

    def check(self, object_id: str, size: int) -> None:
        """Check, a step after the row was read."""
        self.step("check")
        self.bytes.check(object_id, size)

    def stage(self, upload_id: str, algorithm: str | None = None) -> Staged:
        """Stage."""
        self.step("stage")
        return InterleavedStaged(self.bytes.stage(upload_id, algorithm), self.step)

    def resume(self, upload_id: str) -> Staged:
        """Resume."""
        self.step("resume")
        return InterleavedStaged(self.bytes.resume(upload_id), self.step)

    def discard(self, upload_id: str) -> None:
        """Discard."""
        self.step("discard")
        self.bytes.discard(upload_id)

    def check_room(self) -> None:
        """Check the room."""
        self.bytes.check_room()

    def remove_duplicate(self, object_id: str) -> None:
        """Remove a duplicate."""
        self.step("remove_duplicate")
        self.bytes.remove_duplicate(object_id)

    def replace(self, object_id: str, new_id: str) -> None:
        """Replace an object's bytes."""
        self.step("replace")
        self.bytes.replace(object_id, new_id)

    def list_objects(self, shard: int | None = None) -> Iterator[StoredObject]:
        """List objects, with a step after each."""
        for found in self.bytes.list_objects(shard):
            yield found
            self.step("list_objects")

    def list_staged(self) -> Iterator[StoredObject]:
        """List what is staged, with a step after each."""
        for found in self.bytes.list_staged():
            yield found
            self.step("list_staged")

    def list_ids(self, shard: int) -> Iterator[str]:
        """List the ids of objects, with a step after each."""
        for found in self.bytes.list_ids(shard):
            yield found
            self.step("list_ids")

    def set_aside(self, object_id: str, moment: int, *, staged_too: bool = True) -> bool:
        """Set aside."""
        self.step("set_aside")
        return self.bytes.set_aside(object_id, moment, staged_too=staged_too)

    def list_orphans(self) -> Iterator[Orphan]:
        """List orphans, with a step after each."""
        for orphan in self.bytes.list_orphans():
            yield orphan
            self.step("list_orphans")

    def take_back(self, object_id: str) -> bool:
        """Take back."""
        self.step("take_back")
        return self.bytes.take_back(object_id)

    def delete_orphan(self, orphan: Orphan) -> None:
        """Delete an orphan."""
        self.step("delete_orphan")
        self.bytes.delete_orphan(orphan)

    def scan_alone(self) -> AbstractContextManager[bool]:
        """Scan alone."""
        return self.bytes.scan_alone()

    def generation(self) -> str | None:
        """Return the generation."""
        self.step("generation")
        return self.bytes.generation()

    def note_generation(self, generation: str) -> None:
        """Note a generation."""
        self.step("note_generation")
        self.bytes.note_generation(generation)

    def delete(self, object_id: str) -> None:
        """Delete."""
        self.step("delete")
        self.bytes.delete(object_id)


class InterleavedStaged(Staged):
    """Staged bytes of an `InterleavedStore`."""

    def __init__(self, staged: Staged, step: Callable[[str], None]) -> None:
        self._staged = staged
        self._step = step

    @property
    def offset(self) -> int:
        """Return how many bytes are staged."""
        return self._staged.offset

    def rewind(
        self, offset: int, digests: Mapping[str, str] | None = None, algorithm: str | None = None
    ) -> None:
        """Rewind."""
        self._step("rewind")
        self._staged.rewind(offset, digests, algorithm)

    def write(self, view: memoryview, /) -> None:
        """Write: no step, for nobody else sees these bytes."""
        self._staged.write(view)

    def flush(self) -> Mapping[str, str]:
        """Flush."""
        self._step("flush")
        return self._staged.flush()

    def commit(self, expected: Digest) -> Stored:
        """Commit."""
        self._step("commit")
        return self._staged.commit(expected)

    def discard(self) -> None:
        """Discard."""
        self._step("discard")
        self._staged.discard()

    def close(self) -> None:
        """Close; also the dead let go."""
        with suppress(Died):
            self._step("close")
        self._staged.close()


_: type[BlobStore] = InterleavedStore

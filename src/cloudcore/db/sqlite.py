"""The metadata database on SQLite: reads on the event loop, writes in groups on one thread.

`Large` queries run on a third thread: they take milliseconds, mostly to allocate memory.

Reads: pages are read by system call, not mapped (``mmap_size``). At the first read after a commit
of another connection, SQLite drops its cached pages, and would unmap the whole file. To map it
again and fault each page in costs twice as much as to read the same pages.

Writes are in `cloudcore.db.sqlite_writer`.
"""

from __future__ import annotations

import asyncio
import ctypes
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final

from cloudcore.db.base import Connection, Database, Large, P, T
from cloudcore.db.pending import ChangesByThread, Count, Pending, count_nothing
from cloudcore.db.sqlite_connection import SqliteConnection, connect, translated, unusable
from cloudcore.db.sqlite_writer import Writer
from cloudcore.threads import FairThread

HEADER_BYTES: Final = 48
"""Size of one of the two equal headers of the WAL index; a writer changes one after the other."""
_VERSION: Final = 3_007_000
"""The only version of the index's format that exists, stored in its first four bytes."""

_MAPPING: Final = re.compile(
    rb"^([0-9a-f]+)-[0-9a-f]+ r..s 0+ [0-9a-f]+:[0-9a-f]+ (\d+) .*-shm$", re.MULTILINE
)
_Headers = ctypes.c_char * (2 * HEADER_BYTES)


class CommitCount:
    """Counts the commits to an open database, as far as this process has noticed them."""

    def __init__(self, headers: ctypes.Array[ctypes.c_char]) -> None:
        """Watch `headers`, the two headers at the start of the mapped WAL index."""
        self._headers = headers
        self._seen = b""
        self._changes = 0

    def value(self) -> int:
        """Return a number that changes if anything was committed since the last call.

        Call this only while a connection of this process has the database open.
        """
        headers = self._headers.raw
        if headers != self._seen:  # also if a writer is just changing them: they change again
            self._seen = headers
            self._changes += 1
        return self._changes


def commit_count(path: Path) -> CommitCount | None:
    """Return a commit counter for the database at `path`, which a connection has already read.

    Return None if this process has not mapped the WAL index, or the index has an unknown format.
    """
    try:
        number = path.with_name(f"{path.name}-shm").stat().st_ino
        maps = Path("/proc/self/maps").read_bytes()
    except OSError:
        return None
    for start, inode in _MAPPING.findall(maps):
        if int(inode) == number:
            headers = _Headers.from_address(int(start, 16))
            if ctypes.c_uint32.from_buffer(headers).value == _VERSION:
                return CommitCount(headers)
    return None


_DATA_VERSION: Final = "PRAGMA data_version"


class SqliteDatabase(ChangesByThread):
    """The metadata in one SQLite file, which several processes may open.

    Call `read` only on the thread that opened the database, the event loop's. A change is carried
    out even if its caller is cancelled.
    """

    def __init__(self, path: Path, count: Count = count_nothing) -> None:
        """Open the migrated database at `path`.

        Raise `Unavailable` if the file is absent, or cannot be read and written.
        """
        super().__init__(count)
        try:
            self._writer = Writer(path)
            self._reader_raw = connect(path, "ro")
            self._reader_raw.execute(_DATA_VERSION).fetchone()  # maps the index of the log
        except (OSError, sqlite3.DatabaseError) as error:
            raise unusable(path, error, "open") from error
        self._reader = SqliteConnection(self._reader_raw)
        self._path = path
        self._large = FairThread("sqlite-large")
        self._large_raw: sqlite3.Connection | None = None
        self._commits: CommitCount | None = commit_count(path)

    async def read(
        self, query: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `query` on the event loop, in tens of microseconds; run a `Large` one in a thread."""
        if isinstance(query, Large):
            large: Any = query  # mypy takes its parameters for others than those of `read`
            found: T = await self._large.run(
                query.account_id, self._read_large, lambda tx: large(tx, *args, **kwargs)
            )
            return found
        try:
            return query(self._reader, *args, **kwargs)
        except sqlite3.DatabaseError as error:
            raise translated(error, self._path) from error

    def _read_large(self, query: Callable[[Connection], T]) -> T:
        try:
            if self._large_raw is None:
                self._large_raw = connect(self._path, "ro")
            return query(SqliteConnection(self._large_raw))
        except sqlite3.DatabaseError as error:
            raise translated(error, self._path) from error

    def _put(self, pending: Pending) -> None:
        self._writer.put(pending)

    def version(self) -> int | None:
        """Return a number that changes after a commit of this process or another.

        The number comes from the headers in which SQLite's own readers look for commits
        (`CommitCount`). If these are unknown, the number is ``data_version``, which changes with
        commits of all other connections, including the writer's. Return None if the database cannot
        be read.
        """
        if self._commits is not None:
            return self._commits.value()
        try:
            found: int = self._reader_raw.execute(_DATA_VERSION).fetchone()[0]
        except sqlite3.DatabaseError:
            return None  # whatever it is, a read will tell
        return found

    async def close(self) -> None:
        """Commit the accepted changes and close; the last process to close checkpoints the log.

        The database's files remain, with an empty log and index, so that it can be opened on a full
        disk.
        """
        self._writer.stop()
        await asyncio.to_thread(self._writer.join)
        await asyncio.to_thread(self._writer.close)
        self._commits = None  # SQLite ends its mapping
        if self._large_raw is not None:
            await self._large.run("", self._large_raw.close)
        self._reader_raw.close()  # after the writer's: who can only read deletes no files


if TYPE_CHECKING:
    _: type[Database] = SqliteDatabase

"""The metadata database on SQLite: reads on the event loop, writes in groups on one thread.

Durability: the database is in WAL mode, so a commit appends frames to one file. A group with a
durable change commits with ``synchronous=FULL``: SQLite syncs that file before COMMIT returns. A
group of relaxed changes commits with ``NORMAL``, which writes the frames without a sync. The next
durable commit, of this or another process, syncs the whole file and so all frames before its own.
Before the file is reused from its start, a checkpoint syncs first the log and then the database,
also with ``NORMAL``. So a relaxed change can be lost only in a power failure, and only if no later
durable change has returned.

Reads: pages are read by system call, not mapped (``mmap_size``). At the first read after a commit
of another connection, SQLite forgets the pages that it has read, and would unmap the whole file.
To map it again and fault each page in costs twice as much as to read the same pages.

Several processes: each group holds a lock on a file beside the database. SQLite's own busy handler
sleeps and retries, which starves writers for seconds; waiters for the lock sleep in the kernel and
are woken. Checkpoints run inside COMMIT or `close`, under the lock as well: no process checkpoints
while another writes.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate

from cloudcore.db.base import Connection, ConstraintViolated, Database, P, Row, T
from cloudcore.db.pending import Pending, answer
from cloudcore.db.refusals import Refusals
from cloudcore.db.room import DiskFull, is_full
from cloudcore.db.sqlite_commits import CommitCount, commit_count
from cloudcore.db.statement import Statement
from cloudcore.errors import Unavailable

GROUP_CHANGES = 256
GROUP_SECONDS = 0.025
BUSY_SECONDS = 5.0
CHECKPOINT_PAGES = 4000
"""Pages in the log (16 MiB) before a checkpoint, which writes each changed page only once."""
CACHE_KIB = 16 << 10
"""The writer's page cache. Keys are digests, so a commit changes pages all over the indexes."""

_DATA_VERSION = "PRAGMA data_version"

_BUSY = "the database is busy"
_DAMAGED = "the database is damaged"
# Errors caused by the disk or by another program that holds the database; any other is a bug.
_NOT_NOW = {
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_CANTOPEN: "the database cannot be opened",
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_FULL: "the database or disk is full",
    sqlite3.SQLITE_IOERR: "the disk of the database failed",
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_NOMEM: "there is no memory left for the database",
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_PROTOCOL: _BUSY,
    sqlite3.SQLITE_READONLY: "the database cannot be written to",
}
_REFUSED = "the database cannot do this now"

_log = logging.getLogger(__name__)
_refusals = Refusals()


class DatabaseDamaged(Unavailable):
    """The file is not a database, or part of it cannot be read."""

    def __init__(self, path: Path, found: object) -> None:
        super().__init__(
            f"the database {path} is damaged ({found}). Stop the server, keep a copy, and"
            " bring a backup back; without one, 'sqlite3 DAMAGED .recover | sqlite3 NEW' saves what"
            " can be read"
        )


class WriteLock:
    """The lock that writers of all processes take for one database file."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock; wait for it without a time limit."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)


class SqliteConnection:
    """The `Connection` over one sqlite3 connection."""

    __slots__ = ("_raw", "_refusal", "is_announced")

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._raw = raw
        self._refusal: ConstraintViolated | None = None
        self.is_announced = False

    def row(self, statement: Statement, /, **parameters: object) -> Row | None:
        """Return the first row of a query, or None."""
        cursor = self._run(statement, parameters)
        found: Row | None = cursor.fetchone()
        cursor.close()  # an unfinished query would keep its snapshot and block checkpoints
        return found

    def rows(self, statement: Statement, /, **parameters: object) -> Sequence[Row]:
        """Return all rows of a query."""
        return self._run(statement, parameters).fetchall()

    def execute(self, statement: Statement, /, **parameters: object) -> int:
        """Run a statement and return the number of rows changed."""
        return self._run(statement, parameters).rowcount

    def announce(self) -> None:
        """Call the listeners once the running change has committed."""
        self.is_announced = True

    def run(self, change: Callable[[Connection], T]) -> T:
        """Run a whole change; raise a database error that it hid, as on PostgreSQL."""
        self._refusal = None
        self.is_announced = False
        result = change(self)
        if self._refusal is not None:
            raise self._refusal
        return result

    def _run(self, statement: Statement, parameters: dict[str, object]) -> sqlite3.Cursor:
        try:
            return self._raw.execute(statement.sqlite, parameters)
        except sqlite3.IntegrityError as error:
            self._refusal = ConstraintViolated(str(error))
            raise self._refusal from error


class SqliteDatabase:
    """The metadata in one SQLite file, which several processes may open.

    Call `read` only on the thread that opened the database, the event loop's. A change is carried
    out even if its caller is cancelled.
    """

    def __init__(self, path: Path) -> None:
        """Open the migrated database at `path`.

        Raises:
            Unavailable: the file is absent, or cannot be read and written.

        """
        try:
            self._writer = _Writer(path)
            self._reader_raw = connect(path, "ro")
            self._reader_raw.execute(_DATA_VERSION).fetchone()  # maps the index of the log
        except (OSError, sqlite3.DatabaseError) as error:
            raise unusable(path, error, "open") from error
        self._reader = SqliteConnection(self._reader_raw)
        self._path = path
        self._listeners: list[Callable[[], None]] = []
        self._commits: CommitCount | None = commit_count(path)

    async def read(
        self, query: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `query` on the loop, without a thread switch: tens of microseconds."""
        try:
            return query(self._reader, *args, **kwargs)
        except sqlite3.DatabaseError as error:
            raise _translated(error, self._path) from error

    async def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `change` in the next group and return its result once the group is on disk."""
        pending = Pending(
            lambda connection: change(connection, *args, **kwargs), listeners=self._listeners
        )
        self._writer.put(pending)
        result: T = await pending.future
        return result

    async def write_relaxed(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `change` in the next group; wait for the disk only if a durable change is in it."""
        pending = Pending(
            lambda connection: change(connection, *args, **kwargs),
            relaxed=True,
            listeners=self._listeners,
        )
        self._writer.put(pending)
        result: T = await pending.future
        return result

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` on the loop after each commit of a change that called `announce`."""
        self._listeners.append(listener)

    def version(self) -> int | None:
        """Return a number that is another one after a commit, of this process or another.

        It is counted where SQLite's own readers look for commits; where that is not known, it is
        ``data_version``, which sees those of all other connections, so of the writer's too.
        """
        if self._commits is not None:
            return self._commits.value()
        try:
            found: int = self._reader_raw.execute(_DATA_VERSION).fetchone()[0]
        except sqlite3.DatabaseError:
            return None  # whatever it is, a read will tell
        return found

    async def close(self) -> None:
        """Commit the accepted changes and close; the last process to close checkpoints the log."""
        self._writer.stop()
        await asyncio.to_thread(self._writer.join)
        self._commits = None  # SQLite ends its mapping
        self._reader_raw.close()  # before the writer's: a reader cannot checkpoint
        await asyncio.to_thread(self._writer.close)


class _Writer:
    """The single thread that writes for this process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = WriteLock(path)
        with self._lock.held():
            self._raw = connect(path, "rw")
            if self._raw.execute("PRAGMA journal_mode=WAL").fetchone() != ("wal",):
                raise Unavailable(f"the file system of {path} cannot keep a WAL database")
        self._raw.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
        self._raw.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        self._connection = SqliteConnection(self._raw)
        self._relaxed = False
        self._log_suspect = False
        self._is_full = False
        self._stopping = self._closed = False
        self._queue: queue.SimpleQueue[Pending | None] = queue.SimpleQueue()
        self._accepted: deque[Pending] = deque()
        self._thread = threading.Thread(target=self._serve, name="sqlite-writer", daemon=True)
        self._thread.start()

    def put(self, pending: Pending) -> None:
        """Accept a change; call this on the loop, like `stop`."""
        if self._stopping:
            raise Unavailable("the database is closing")
        self._queue.put(pending)

    def stop(self) -> None:
        """Accept no more changes."""
        if not self._stopping:
            self._stopping = True
            self._queue.put(None)

    def join(self) -> None:
        """Wait until all accepted changes have ended."""
        self._thread.join()

    def close(self) -> None:
        """Close the connection of a writer that has ended."""
        if not self._closed:
            self._closed = True
            with self._lock.held():
                self._raw.close()
            self._lock.close()

    def _serve(self) -> None:
        while self._wait_for_work():
            group: list[Pending] = []
            try:
                with self._lock.held():
                    self._accept_waiting()
                    self._commit_group(group)
            except Exception as error:  # noqa: BLE001 - without this thread all writes would hang
                self._fail_group(group, error)
            answer(group)
            del group  # while idle, keep nothing that its changes got and gave

    def _wait_for_work(self) -> bool:
        if not self._accepted:
            first = self._queue.get()
            if first is None:
                return False
            self._accepted.append(first)
        return True

    def _accept_waiting(self) -> None:
        while len(self._accepted) < GROUP_CHANGES:
            try:
                pending = self._queue.get_nowait()
            except queue.Empty:
                return
            if pending is None:  # the end mark: put it back at the end
                self._queue.put(None)
                return
            self._accepted.append(pending)

    def _commit_group(self, group: list[Pending]) -> None:
        """Move accepted changes to `group`, running each in one transaction, and commit it."""
        self._begin(relaxed=all(pending.relaxed for pending in self._accepted))
        if not self._run_together(group):
            self._raw.execute("BEGIN IMMEDIATE")
            for pending in group:
                self._run_apart(pending)
        if self._raw.in_transaction:
            self._raw.execute("COMMIT")

    def _run_together(self, group: list[Pending]) -> bool:
        """Run changes without savepoints, for each of which SQLite copies the pages it changes.

        If one raises, roll back. Return False if others must be run again then, each apart.
        """
        stop_at = time.monotonic() + GROUP_SECONDS
        while self._accepted and (not group or time.monotonic() < stop_at):
            group.append(pending := self._accepted.popleft())
            try:
                self._run(pending)
            except BaseException as error:  # noqa: BLE001 - it belongs to the caller
                pending.error = self._caused_by(error)
                self._raw.execute("ROLLBACK")
                return len(group) == 1
        return True

    def _begin(self, *, relaxed: bool) -> None:
        if self._log_suspect:
            self._fold_log()
        if self._is_full:
            self._use_log_again()
        if relaxed != self._relaxed:
            self._raw.execute(f"PRAGMA synchronous={'NORMAL' if relaxed else 'FULL'}")
            self._relaxed = relaxed
        self._raw.execute("BEGIN IMMEDIATE")

    def _run(self, pending: Pending) -> None:
        pending.result = self._connection.run(pending.call)
        pending.is_announced = self._connection.is_announced

    def _run_apart(self, pending: Pending) -> None:
        """Run one change of a group; if it raises, roll back only this one."""
        pending.error = None
        self._raw.execute("SAVEPOINT change")
        try:
            self._run(pending)
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller
            pending.error = self._caused_by(error)
            self._raw.execute("ROLLBACK TO change")
        self._raw.execute("RELEASE change")

    def _caused_by(self, error: BaseException) -> BaseException:
        """Return what a caller is told of an error; raise if that has ended the transaction."""
        if not self._raw.in_transaction:  # errors such as a full disk end the whole transaction
            raise sqlite3.OperationalError(f"the transaction was lost: {error}") from error
        return _translated(error, self._path)

    def _fail_group(self, group: list[Pending], error: Exception) -> None:
        """Roll back a group that could not be committed, and give each caller the error."""
        if not group:  # it failed before the first change
            group.extend(self._accepted)
            self._accepted.clear()
        if self._raw.in_transaction:
            with suppress(sqlite3.Error):
                self._raw.execute("ROLLBACK")
        codes = {_primary_code(error), _primary_code(error.__cause__)}
        self._log_suspect |= sqlite3.SQLITE_IOERR in codes
        self._is_full |= sqlite3.SQLITE_FULL in codes
        for pending in group:
            if pending.error is None:
                pending.error = _refused(error, self._path)
                pending.error.__cause__ = error

    def _fold_log(self) -> None:
        """Checkpoint the log and truncate it.

        After a failed sync the kernel may mark pages as clean that never reached the disk. A later
        sync would skip them, and later commits would be lost with them.
        """
        self._raw.execute("PRAGMA synchronous=FULL")
        self._relaxed = False
        busy, *_ = self._raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise sqlite3.OperationalError("the log could not be emptied after an I/O error")
        self._log_suspect = False

    def _use_log_again(self) -> None:
        """Restart the log from its beginning if possible: on a full disk it cannot grow.

        A checkpoint that only changes existing pages of the database needs no space.
        """
        self._is_full = False
        with suppress(sqlite3.OperationalError):
            self._raw.execute("PRAGMA wal_checkpoint(RESTART)")


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """Open an existing database file, ``ro`` or ``rw``, with the common settings."""
    raw = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=mode == "ro",
        cached_statements=512,
    )
    raw.execute("PRAGMA foreign_keys=ON")
    raw.execute("PRAGMA synchronous=FULL")
    return raw


def restrict_access(path: Path) -> None:
    """Create the database file if absent; set mode 0600 on it and its ``-wal`` and ``-shm`` files.

    SQLite creates those with the mode of the database. An existing file is not opened: closing it
    would drop the locks that this process holds on it.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    for suffix in ("", "-wal", "-shm", ".lock"):
        file = path.with_name(f"{path.name}{suffix}")
        try:
            mode = file.stat().st_mode
            if mode & 0o077:
                file.chmod(mode & 0o700)
        except FileNotFoundError:
            continue
        except PermissionError as error:
            _log.warning("%s may be readable by others; its mode stays: %s", file, error.strerror)


def check_damage(path: Path, *, at_most: int | None = None) -> None:
    """Check a database file for damage.

    For a file over `at_most` bytes, only read the schema.

    Raises:
        DatabaseDamaged: the file is damaged.
        sqlite3.OperationalError: the file cannot be read.

    """
    try:
        with closing(connect(path, "ro")) as raw:
            raw.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if at_most is None or path.stat().st_size <= at_most:
                (found,) = raw.execute("PRAGMA quick_check(1)").fetchone()
                if found != "ok":
                    raise DatabaseDamaged(path, " ".join(str(found).split()))
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            raise DatabaseDamaged(path, error) from error
        raise


def is_damage(error: BaseException) -> bool:
    """Return True if an error means that the file is damaged."""
    return _NOT_NOW.get(_primary_code(error) or 0) is _DAMAGED


def unusable(path: Path, error: Exception, verb: str) -> Unavailable:
    """Return the error for a database that cannot be opened, read or migrated, as `verb` says."""
    if is_damage(error):
        return DatabaseDamaged(path, error)
    if is_full(path, error):
        return DiskFull(path)
    return Unavailable(f"cannot {verb} the database {path}: {error}")


def _translated(error: BaseException, path: Path) -> BaseException:
    return _refused(error, path) if _primary_code(error) in _NOT_NOW else error


def _refused(error: BaseException, path: Path) -> Unavailable:
    code = _primary_code(error) or _primary_code(error.__cause__) or 0
    sentence = _NOT_NOW.get(code, _REFUSED)
    refused = _refusals.unavailable(sentence, error)
    return DiskFull(path, sentence) if code == sqlite3.SQLITE_FULL else refused


def _primary_code(error: BaseException | None) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


if TYPE_CHECKING:
    _: type[Database] = SqliteDatabase

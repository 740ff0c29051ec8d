"""One connection to a SQLite file, with common settings and file modes; errors for callers.

The errors distinguish a failing disk, interference by another program, and damage.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from cloudcore.db.base import Connection, ConstraintViolated, Row, T
from cloudcore.db.refusals import DiskFull, Refusals, is_full, is_read_only
from cloudcore.db.statement import Statement
from cloudcore.errors import Unavailable

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

_refusals = Refusals()


class DatabaseDamaged(Unavailable):
    """The file is not a database, or part of it cannot be read."""

    def __init__(self, path: Path, found: object) -> None:
        super().__init__(
            f"the database {path} is damaged ({found}). Stop the server, keep a copy, and"
            " bring a backup back; without one, 'sqlite3 DAMAGED .recover | sqlite3 NEW' saves what"
            " can be read"
        )


def is_damage(error: BaseException) -> bool:
    """Return True if an error means that the file is damaged."""
    return _NOT_NOW.get(primary_code(error) or 0) is _DAMAGED


def unusable(path: Path, error: Exception, verb: str) -> Unavailable:
    """Return the error for a database that cannot be opened, read or migrated (`verb`)."""
    if is_damage(error):
        return DatabaseDamaged(path, error)
    if is_full(path, error):
        return DiskFull(path)
    if is_read_only(path.parent):
        return Unavailable(
            f"the disk that holds {path} is read-only, and SQLite writes files beside a database"
            " even to read it; look in the system's log whether the disk has failed, and mount it"
            " writable"
        )
    return Unavailable(f"cannot {verb} the database {path}: {error}")


def translated(error: BaseException, path: Path) -> BaseException:
    """Convert an SQLite error to the error for callers; return any other error unchanged."""
    return refused(error, path) if primary_code(error) in _NOT_NOW else error


def refused(error: BaseException, path: Path) -> Unavailable:
    """Log why the database refuses a call now, and return the error for the caller."""
    code = primary_code(error) or primary_code(error.__cause__) or 0
    sentence = _NOT_NOW.get(code, _REFUSED)
    unavailable = _refusals.unavailable(sentence, error)
    return DiskFull(path, sentence) if code == sqlite3.SQLITE_FULL else unavailable


def primary_code(error: BaseException | None) -> int | None:
    """Return the primary code of an SQLite error, or None for any other error."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


BUSY_SECONDS = 5.0

_log = logging.getLogger(__name__)


class SqliteConnection:
    """The `Connection` over one sqlite3 connection."""

    joins_changes: Final = False

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
        """Run a whole change; raise its last `ConstraintViolated` again if the change caught it."""
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


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """Open an existing database file with the common settings; `mode` is ``ro`` or ``rw``."""
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
    """Create the database file (mode 0600) if absent; deny others access to it and its companions.

    SQLite creates the companions ``-wal`` and ``-shm`` with the mode of the database. Existing
    files are not opened: closing one would drop the locks that this process holds on it.

    Raise `Unavailable` if `path` is a folder, whose other files must stay accessible.
    """
    if path.is_dir():
        raise Unavailable(f"the database {path} is a folder; name a file in it")
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
    """Check a database file for damage; if it has more than `at_most` bytes, read only the schema.

    Raise `DatabaseDamaged` if the file is damaged, `sqlite3.OperationalError` if it cannot be read.
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


_PAGES: Final = 2048
"""Pages copied between two calls of `on_progress`: 8 MiB."""


def copy_database(source: Path, target: Path, on_progress: Callable[[int, int], None]) -> None:
    """Copy the current state of the database at `source` to the new file `target`, durably.

    The copy runs in a read transaction, so it is consistent; in WAL mode it does not block writers.
    The copy is a single file without a log. `on_progress` is called with the number of pages copied
    so far, and the number of all pages.

    Raise `DatabaseDamaged` if the copy, and so the source, is damaged; `sqlite3.Error` if reading
    or writing failed.
    """
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def progress(_status: int, remaining: int, total: int) -> None:
        on_progress(total - remaining, total)

    with closing(connect(source, "ro")) as original, closing(sqlite3.connect(target)) as copy:
        # Without a transaction of its own, a copy begins anew after each commit of others.
        original.execute("BEGIN")
        original.execute("SELECT count(*) FROM sqlite_master").fetchone()
        original.backup(copy, pages=_PAGES, progress=progress)
        copy.execute("PRAGMA journal_mode=DELETE")
    check_damage(target, at_most=0)
    descriptor = os.open(target, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def reading(path: Path) -> Iterator[Connection]:
    """Yield a connection to a database that no process writes to, for queries on this thread."""
    raw = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None
    )
    with closing(raw):
        yield SqliteConnection(raw)


@contextmanager
def reading_live(path: Path) -> Iterator[Connection]:
    """Yield a connection to a database that others may write to, for queries on this thread."""
    with closing(connect(path, "ro")) as raw:
        yield SqliteConnection(raw)

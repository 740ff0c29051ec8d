"""One connection to a SQLite file, with the settings and the rights that all of ours have."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from cloudcore.db.base import Connection, ConstraintViolated, Row, T
from cloudcore.db.sqlite_failures import DatabaseDamaged, is_damage
from cloudcore.db.statement import Statement

BUSY_SECONDS = 5.0

_log = logging.getLogger(__name__)


class SqliteConnection:
    """The `Connection` over one sqlite3 connection."""

    __slots__ = ("_raw", "_refusal", "is_announced")
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

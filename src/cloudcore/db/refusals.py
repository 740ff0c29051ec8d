"""Log and translate errors of a database that is full, read-only or unreachable.

A full disk is distinguished from a failed one: SQLite reports both as "disk I/O error". A driver's
message may name hosts, ports, users, files and statements, so it is only logged.
"""

from __future__ import annotations

import errno
import logging
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cloudcore.errors import Unavailable
from cloudcore.files import NO_ROOM

_MAY_BE_FULL: Final = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
_FILE_BYTES: Final = 32 << 10
"""Size of the smallest file that SQLite creates beside a database (``-shm``)."""


class DiskFull(Unavailable):
    """The disk of the database is full. Clients do not see its `path`."""

    def __init__(self, path: Path, message: str = "") -> None:
        self.path = path
        super().__init__(message or self.advice)

    @property
    def advice(self) -> str:
        """Return advice for the operator of this machine."""
        return f"the disk that holds {self.path} is full; free some room"


def is_full(path: Path, error: BaseException | None) -> bool:
    """Return True if an error of SQLite or the system means that the disk of `path` is full.

    If the error may have other causes, write some bytes beside `path` as a test, and delete them.
    """
    if isinstance(error, OSError):
        return error.errno in NO_ROOM
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    return code == sqlite3.SQLITE_FULL or (
        code in _MAY_BE_FULL and _refusal(path.parent) in NO_ROOM
    )


def is_read_only(folder: Path) -> bool:
    """Return True if a small file cannot be written in a folder because its disk is read-only."""
    return _refusal(folder) == errno.EROFS


def _refusal(folder: Path) -> int | None:
    """Write some bytes in a folder, and delete them; return the errno if that failed, or None."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_FILE_BYTES))
            file.flush()
    except OSError as error:
        return error.errno
    return None


AGAIN_SECONDS: Final = 60.0
"""Seconds before a failure of the same kind is logged again."""

_log = logging.getLogger(__name__)


class Refusals:
    """Logs the failures of a database: each kind at once, then at most once a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._told_at: dict[str, float] = {}

    def unavailable(
        self, sentence: str, error: BaseException, kind: type[Unavailable] = Unavailable
    ) -> Unavailable:
        """Log why the database refused, and return an error of `kind` with the message `sentence`.

        `error` appears only in the log.
        """
        now = self._clock()
        with self._lock:
            is_new = now - self._told_at.get(sentence, -AGAIN_SECONDS) >= AGAIN_SECONDS
            if is_new:
                self._told_at[sentence] = now
        if is_new:
            _log.warning("%s: %s", sentence, " ".join(str(error).split()))
        return kind(sentence)

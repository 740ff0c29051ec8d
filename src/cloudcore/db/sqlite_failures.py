"""What callers are told when SQLite fails: by the disk, by another program, by damage."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from cloudcore.db.refusals import Refusals
from cloudcore.db.room import DiskFull, is_full, is_read_only
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
    """Return the error for a database that cannot be opened, read or migrated, as `verb` says."""
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
    """Return what a caller is told of an error: itself, if it is a bug."""
    return refused(error, path) if primary_code(error) in _NOT_NOW else error


def refused(error: BaseException, path: Path) -> Unavailable:
    """Return the refusal of what cannot be done now."""
    code = primary_code(error) or primary_code(error.__cause__) or 0
    sentence = _NOT_NOW.get(code, _REFUSED)
    unavailable = _refusals.unavailable(sentence, error)
    return DiskFull(path, sentence) if code == sqlite3.SQLITE_FULL else unavailable


def primary_code(error: BaseException | None) -> int | None:
    """Return SQLite's code of an error without what makes it particular, or None."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF

"""Copy an SQLite database while other processes write to it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from cloudcore.db.base import Connection
from cloudcore.db.sqlite_connection import SqliteConnection, check_damage, connect

_PAGES: Final = 2048
"""Pages copied between two calls of `tell`: 8 MiB."""


def copy_database(source: Path, target: Path, tell: Callable[[int, int], None]) -> None:
    """Copy the database at `source`, as it is now, to the new file `target`, durably.

    The copy is one state of the database: a read transaction is open meanwhile, which in WAL mode
    keeps no writer waiting. It is a single file without a log. `tell` gets the number of pages
    copied, and of all.

    Raises:
        DatabaseDamaged: the copy is damaged, so the source is too.
        sqlite3.Error: reading or writing failed.

    """
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def progress(_status: int, remaining: int, total: int) -> None:
        tell(total - remaining, total)

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
    """Open a database that nobody writes to, for queries on this thread."""
    raw = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None
    )
    with closing(raw):
        yield SqliteConnection(raw)


@contextmanager
def reading_live(path: Path) -> Iterator[Connection]:
    """Open a database that other processes may write to, for queries on this thread."""
    with closing(connect(path, "ro")) as raw:
        yield SqliteConnection(raw)

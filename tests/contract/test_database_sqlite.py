"""What only SQLite can get wrong: the sync of a group, the lock between processes, the file."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import text

from cloudcore.db.base import Connection, Database
from cloudcore.db.opening import open_database
from cloudcore.db.sqlite_writer import WriteLock
from cloudcore.db.statement import Statement
from cloudcore.errors import Unavailable
from tests.databases import add_account, opened

SYNCHRONOUS: Final = Statement(text("PRAGMA synchronous"))
CHANGE_ALL: Final = Statement(text("UPDATE accounts SET handle = handle || 'x'"))
NORMAL: Final = (1,)
FULL: Final = (2,)


def synchronous(connection: Connection) -> object:
    return connection.row(SYNCHRONOUS)


def file_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


async def test_only_a_group_of_relaxed_changes_skips_the_sync(database: Database) -> None:
    release = threading.Event()

    assert await database.write(synchronous) == FULL
    assert await database.write_relaxed(synchronous) == NORMAL
    assert await database.write(synchronous) == FULL
    held = asyncio.ensure_future(database.write(lambda _: release.wait(30)))
    mixed = [
        asyncio.ensure_future(database.write_relaxed(synchronous)),
        asyncio.ensure_future(database.write(synchronous)),
    ]
    await asyncio.sleep(0)
    release.set()
    assert await held
    assert await asyncio.gather(*mixed) == [FULL, FULL]


async def test_writers_of_all_processes_take_turns_by_the_lock_file(
    database: Database, sqlite_database: str
) -> None:
    lock = WriteLock(file_of(sqlite_database))
    with lock.held():
        waiting = asyncio.ensure_future(database.write(add_account, "a"))
        done, _ = await asyncio.wait([waiting], timeout=0.1)
        assert not done
    await waiting
    lock.close()


async def test_a_foreign_program_that_holds_the_file_makes_it_unavailable(
    database: Database, sqlite_database: str
) -> None:
    foreign = sqlite3.connect(file_of(sqlite_database), isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")
    writes = [database.write(add_account, handle) for handle in "ab"]
    for outcome in await asyncio.gather(*writes, return_exceptions=True):
        assert isinstance(outcome, Unavailable)
    assert await database.read(lambda connection: connection.row(SYNCHRONOUS)) is not None
    foreign.close()
    await database.write(add_account, "a")


async def test_the_log_stays_short_under_steady_writes(
    database: Database, sqlite_database: str
) -> None:
    def store(connection: Connection, number: int) -> None:
        add_account(connection, str(number).zfill(8000))

    for start in range(0, 3000, 50):
        await asyncio.gather(*(database.write(store, start + n) for n in range(50)))
        await database.read(lambda connection: connection.row(SYNCHRONOUS))
    log = file_of(sqlite_database).with_name("metadata.db-wal")
    assert log.stat().st_size < 24 << 20


async def test_what_a_statement_replaces_is_kept_in_no_file(database: Database) -> None:
    def files(tx: Connection) -> list[str]:
        assert tx.execute(CHANGE_ALL) == 40
        opened = (os.path.realpath(each) for each in Path("/proc/self/fd").iterdir())
        return [path for path in opened if "etilqs" in path]  # as SQLite calls temporary ones

    for number in range(40):
        await database.write(add_account, str(number).zfill(3000))
    assert await database.write(files) == []


async def test_close_leaves_one_whole_file(sqlite_database: str, tmp_path: Path) -> None:
    """The last of several leaves nothing in the log, and the room that its index needs."""
    async with opened(sqlite_database) as first, opened(sqlite_database) as last:
        await first.write(add_account, "a")
        await first.close()
        await last.write(add_account, "b")
    file = file_of(sqlite_database)
    assert file.with_name("metadata.db-wal").stat().st_size == 0
    assert file.with_name("metadata.db-shm").stat().st_blocks > 0
    alone = tmp_path / "alone.db"
    shutil.copy(file, alone)
    with closing(sqlite3.connect(alone)) as raw:
        assert raw.execute("SELECT handle FROM accounts").fetchall() == [("a",), ("b",)]


def test_an_absent_database_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        open_database(f"sqlite:///{tmp_path}/absent.db")
    with pytest.raises(Unavailable):
        open_database(f"sqlite:///{tmp_path}/no/folder.db")


async def test_a_path_may_hold_any_character(sqlite_database: str) -> None:
    odd = file_of(sqlite_database).rename(file_of(sqlite_database).with_name("50% odd?#é.db"))
    async with opened(f"sqlite:///{odd}") as database:
        await database.write(add_account, "a")
    assert odd.exists()


async def test_the_version_moves_with_each_commit_of_this_and_another_process(
    database: Database, sqlite_database: str
) -> None:
    seen = [database.version()]
    assert database.version() == seen[0]
    await database.write(add_account, "ours")
    seen.append(database.version())
    async with opened(sqlite_database) as other:
        await other.write_relaxed(add_account, "theirs")
        seen.append(database.version())
        await other.read(synchronous)
        assert database.version() == seen[-1]
    assert None not in seen
    assert len(set(seen)) == len(seen)

"""What is seen of commits in the index of SQLite's log."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from cloudcore.db.sqlite import commit_count

COUNT_UP: Final = "UPDATE counted SET number = number + 1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a database with one row."""
    made = tmp_path / "a file.db"
    with closing(connect(made)) as raw:
        raw.execute("PRAGMA journal_mode=WAL")
        raw.execute("CREATE TABLE counted (number INTEGER)")
        raw.execute("INSERT INTO counted VALUES (0)")
    return made


@pytest.fixture
def reader(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect(path)) as raw:
        number(raw)
        yield raw


def connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=20)


def number(raw: sqlite3.Connection) -> int:
    return int(raw.execute("SELECT number FROM counted").fetchone()[0])


def test_each_commit_is_seen_and_nothing_else(path: Path, reader: sqlite3.Connection) -> None:
    count = commit_count(path)
    assert count is not None
    seen = [count.value()]
    with closing(connect(path)) as writer:
        for _ in range(3):
            writer.execute(COUNT_UP)
            seen.append(count.value())
            number(reader)
            writer.execute("BEGIN IMMEDIATE")
            writer.execute(COUNT_UP)
            writer.execute("ROLLBACK")
            assert count.value() == seen[-1]
            # The log begins anew from its start.
            writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            seen.append(count.value())
    assert seen == sorted(seen)
    assert len({*seen[::2]}) == 4


def test_the_commit_of_another_process_is_seen(path: Path, reader: sqlite3.Connection) -> None:
    count = commit_count(path)
    assert count is not None
    before = count.value()
    program = (
        f"import sqlite3; c = sqlite3.connect({str(path)!r}); c.execute({COUNT_UP!r}); c.commit()"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert count.value() != before
    assert number(reader) == 1


def test_reads_between_equal_counts_find_the_same(path: Path, reader: sqlite3.Connection) -> None:
    count = commit_count(path)
    assert count is not None
    stopping = threading.Event()

    def commit() -> None:
        with closing(connect(path)) as writer:
            writer.execute("PRAGMA synchronous=OFF")
            writer.execute("PRAGMA wal_autocheckpoint=20")
            while not stopping.is_set():
                writer.execute(COUNT_UP)

    thread = threading.Thread(target=commit)
    thread.start()
    try:
        compared = changed = 0
        while compared < 200 or changed < 200:
            before, first, second = count.value(), number(reader), number(reader)
            if count.value() == before:
                compared += 1
                assert first == second
            else:
                changed += 1
    finally:
        stopping.set()
        thread.join()


def test_without_a_mapped_index_there_is_none(path: Path) -> None:
    assert commit_count(path) is None
    assert commit_count(path.with_name("absent.db")) is None

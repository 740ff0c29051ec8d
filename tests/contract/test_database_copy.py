"""A copy of an SQLite database is one state of it, whoever writes meanwhile."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from cloudcore.db.sqlite_connection import copy_database


def test_a_copy_is_the_state_at_its_begin_and_keeps_no_writer_waiting(tmp_path: Path) -> None:
    source, target = tmp_path / "source.db", tmp_path / "copy.db"
    with closing(sqlite3.connect(source, isolation_level=None, timeout=0)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("CREATE TABLE things (id INTEGER PRIMARY KEY, body BLOB)")
        writer.executemany(
            "INSERT INTO things VALUES (?, ?)", [(n, b"." * 4000) for n in range(5000)]
        )
        steps = 0

        def tell(_done: int, _total: int) -> None:
            nonlocal steps
            steps += 1
            writer.execute("DELETE FROM things WHERE id = ?", [steps])
            writer.execute("INSERT INTO things VALUES (?, ?)", [10_000 + steps, b"new"])

        copy_database(source, target, tell)
        assert steps > 1  # one would prove nothing
    with closing(sqlite3.connect(target)) as copy:
        assert copy.execute("SELECT count(*), min(id), max(id) FROM things").fetchone() == (
            5000,
            0,
            4999,
        )
    assert {each.name for each in tmp_path.iterdir()} >= {"source.db", "copy.db"}
    assert not target.with_name("copy.db-wal").exists()
    assert target.stat().st_mode & 0o777 == 0o600

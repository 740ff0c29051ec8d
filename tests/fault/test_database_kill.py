"""What was answered outlives the process, its disk errors and its full disk."""

from __future__ import annotations

import itertools
import os
import random
import re
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple, TextIO

import pytest
from sqlalchemy import select

from cloudcore.db.base import Connection, Database
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import accounts
from registry.metadata.tables import repositories
from tests.databases import program, program_environment, with_database
from tests.fault.accounts import is_relaxed
from tests.tools import require_tool

CYCLES: Final = 20
STORED: Final = Statement(
    select(accounts.c.handle, repositories.c.name).outerjoin(
        repositories, repositories.c.account_id == accounts.c.id
    )
)


class Writers:
    """Begins processes that write, one after the other, each with a pipe of its own."""

    def __init__(self, folder: Path) -> None:
        self._count = itertools.count()
        self._folder = folder
        self._process = subprocess.Popen(
            program("tests.fault.accounts"),
            env=program_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self, url: str) -> Writer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pipe = self._folder / f"writer-{next(self._count)}"
        os.mkfifo(pipe)
        self._process.stdin.write(f"{url} 8 0 {pipe}\n")
        self._process.stdin.flush()
        return Writer(int(self._process.stdout.readline()), pipe.open())

    def close(self) -> None:
        self._process.communicate()


class Writer(NamedTuple):
    """A process that writes, and what it says."""

    pid: int
    said: TextIO

    def killed(self) -> str:
        """Kill it, and return what it said to its end."""
        os.kill(self.pid, signal.SIGKILL)
        with self.said:
            return self.said.read()


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[Writers]:
    made = Writers(tmp_path)
    yield made
    made.close()


def writing(url: str, *prefix: str, callers: int = 8, answers: int = 0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*prefix, *program("tests.fault.accounts", url, str(callers), str(answers))],
        env=program_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )


def answered(output: str, word: str) -> set[str]:
    """Return the handles of whole lines: the last one may have been cut."""
    return set(re.findall(rf"^{word} (\S{{36}})$", output, flags=re.MULTILINE))


def stored(url: str) -> set[str]:
    """Return the handles of the changes in the database, having checked that each is whole."""

    def find(connection: Connection) -> set[str]:
        rows = connection.rows(STORED)
        assert all(handle == name for handle, name in rows)
        return {handle for handle, _ in rows}

    async def scenario(database: Database) -> set[str]:
        return await database.read(find)

    return with_database(url, scenario)


def check_file(url: str) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def test_a_killed_process_loses_nothing_it_answered(sqlite_database: str, writers: Writers) -> None:
    """Two processes write; one after the other is killed at a random moment and replaced."""
    kept: set[str] = set()
    two = [writers.begin(sqlite_database), writers.begin(sqlite_database)]
    for cycle in range(CYCLES):
        killed = two[cycle % 2]
        first = killed.said.readline()  # it is at work
        time.sleep(random.uniform(0, 0.1))  # the moment of death, not a synchronisation
        output = first + killed.killed()
        kept |= answered(output, "kept")
        assert "refused" not in output
        assert kept <= stored(sqlite_database)
        two[cycle % 2] = writers.begin(sqlite_database)
    for writer in two:
        kept |= answered(writer.killed(), "kept")
    assert kept <= stored(sqlite_database)
    assert len(kept) > CYCLES
    check_file(sqlite_database)


@pytest.mark.postgresql
def test_a_killed_process_loses_nothing_postgresql_has(
    postgresql_database: str, writers: Writers
) -> None:
    kept: set[str] = set()
    for _ in range(3):
        killed = writers.begin(postgresql_database)
        first = killed.said.readline()
        time.sleep(random.uniform(0, 0.1))  # the moment of death, not a synchronisation
        kept |= answered(first + killed.killed(), "kept")
        assert kept <= stored(postgresql_database)
    assert kept


@pytest.mark.parametrize(
    ("calls", "error"),
    [("fsync,fdatasync", "EIO"), ("pwrite64", "ENOSPC"), ("pwrite64", "EIO")],
)
def test_a_disk_that_fails_refuses_and_recovers(
    sqlite_database: str, tmp_path: Path, calls: str, error: str
) -> None:
    """Some system calls of the writer fail: those changes are refused, the next ones are kept."""
    strace = [require_tool("strace"), "-f", "-qqq", "-o", str(tmp_path / "trace")]
    fault = [f"--trace={calls}", f"--inject={calls}:error={error}:when=20..30+3"]
    with writing(sqlite_database, *strace, *fault, answers=300) as writer:
        output = writer.communicate(timeout=60)[0]
    assert writer.returncode == 0
    assert error in (tmp_path / "trace").read_text()
    kept, refused = answered(output, "kept"), answered(output, "refused")
    assert len(kept | refused) == 300
    assert refused
    assert "kept" in output.splitlines()[-1]
    assert kept <= stored(sqlite_database)
    check_file(sqlite_database)


def test_an_answer_follows_the_sync_of_all_that_was_written(
    sqlite_database: str, tmp_path: Path
) -> None:
    """In the order of system calls: log written, log synced, answered; relaxed: not synced."""
    trace = tmp_path / "trace"
    strace = [require_tool("strace"), "-f", "-y", "-qqq", "-s", "64", "-o", str(trace)]
    calls = "--trace=pwrite64,fsync,fdatasync,write"
    with writing(sqlite_database, *strace, calls, callers=1, answers=60) as writer:
        kept = answered(writer.communicate(timeout=60)[0], "kept")
    assert len(kept) == 60
    log_call = re.compile(r"(pwrite64|fsync|fdatasync)\(\d+<[^>]*-wal>|\"kept (\S{36})")
    since_answer: list[str] = []
    for call, handle in log_call.findall(trace.read_text()):
        if call:
            since_answer.append(call)
            continue
        assert "pwrite64" in since_answer
        synced = since_answer[-1] in {"fsync", "fdatasync"}
        assert synced is not is_relaxed(handle)
        since_answer.clear()
        kept.remove(handle)
    assert kept == set()

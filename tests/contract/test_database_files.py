"""The files of an SQLite database: their owner's alone, and what is told when one is damaged."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final
from unittest.mock import Mock

import pytest
from sqlalchemy import func, select

from cloudcore.db import sqlite_connection, sqlite_writer
from cloudcore.db.base import Connection
from cloudcore.db.refusals import AGAIN_SECONDS, Refusals
from cloudcore.db.statement import Statement
from cloudcore.errors import Unavailable
from cloudcore.identity.tables import accounts
from registry.cli.main import main
from registry.metadata.database import migrate
from tests.databases import add_account, opened

COUNT: Final = Statement(select(func.count()).select_from(accounts))
PAGE: Final = 4096


pytestmark = pytest.mark.usefixtures("no_settings")


@pytest.fixture
def open_folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder that everybody may use, by a process that hides nothing."""
    before = os.umask(0)
    folder = tmp_path / "data"
    folder.mkdir(mode=0o777)
    yield folder
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()}


async def test_only_the_owner_reads_the_database(open_folder: Path) -> None:
    path = open_folder / "metadata.db"
    url = f"sqlite:///{path}"
    files = {"metadata.db", "metadata.db-wal", "metadata.db-shm", "metadata.db.lock"}

    migrate(url)
    async with opened(url) as database:
        await database.write(add_account, "first")
        assert modes(open_folder) == dict.fromkeys(files, 0o600)


def test_a_start_takes_away_what_others_may_do(open_folder: Path) -> None:
    path = open_folder / "metadata.db"
    migrate(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("CREATE TABLE t (x)")
        raw.commit()
        for name in modes(open_folder):
            (open_folder / name).chmod(0o666)
        assert "metadata.db-wal" in modes(open_folder)
        migrate(f"sqlite:///{path}")
        assert set(modes(open_folder).values()) == {0o600}


def test_a_file_whose_mode_cannot_be_changed_is_told_and_used(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = open_folder / "metadata.db"
    migrate(f"sqlite:///{path}")
    path.chmod(0o644)
    monkeypatch.setattr(Path, "chmod", Mock(side_effect=PermissionError(1, "not the owner")))
    migrate(f"sqlite:///{path}")
    assert modes(open_folder)["metadata.db"] == 0o644
    assert f"{path} may be readable by others; its mode stays: not the owner" in caplog.text


def test_a_file_system_without_a_log_to_write_ahead_is_refused(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = open_folder / "metadata.db"
    migrate(f"sqlite:///{path}")
    raw = Mock()
    raw.execute.return_value.fetchone.return_value = ("delete",)
    monkeypatch.setattr(sqlite_writer, "connect", Mock(return_value=raw))
    with pytest.raises(Unavailable, match="cannot keep a WAL database"):
        sqlite_writer.Writer(path)


def spoil_header(path: Path) -> None:
    """Let the beginning be anything."""
    path.write_bytes(os.urandom(100) + path.read_bytes()[100:])


def cut_short(path: Path) -> None:
    """Leave the first half."""
    os.truncate(path, path.stat().st_size // 2 // PAGE * PAGE)


def spoil_a_page(path: Path) -> None:
    """Let a page in the middle be anything."""
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // PAGE * PAGE
    content[middle : middle + PAGE] = b"\xa5" * PAGE
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [spoil_header, cut_short, spoil_a_page])
@pytest.mark.parametrize(
    "command", [("fsck",), ("dev", "--port", "0"), ("serve", "--port", "0"), ("gc", "orphans")]
)
def test_a_damaged_file_is_one_clear_line(
    tmp_path: Path,
    migrated_file: Path,
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
    damage: Callable[[Path], None],
) -> None:
    path = tmp_path / "metadata.db"
    shutil.copy(migrated_file, path)
    damage(path)
    assert main((*command, "--data", str(tmp_path))) != 0
    told = capsys.readouterr()
    assert told.out == ""
    (line,) = told.err.splitlines()
    assert line.startswith(f"entrepot: the database {path} is damaged (")
    assert "backup" in line
    assert ".recover" in line


async def test_damage_found_on_the_way_is_a_refusal_and_one_line_of_the_log(
    tmp_path: Path,
    migrated_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sqlite_connection, "_refusals", Refusals())
    path = tmp_path / "metadata.db"
    shutil.copy(migrated_file, path)
    with closing(sqlite3.connect(path)) as raw:
        (root,) = raw.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'accounts'"
        ).fetchone()

    with caplog.at_level(logging.WARNING):
        async with opened(f"sqlite:///{path}") as database:
            with path.open("r+b") as file:
                file.seek((root - 1) * PAGE)
                file.write(b"\xa5" * PAGE)

            def read_accounts(tx: Connection) -> object:
                return tx.rows(Statement(accounts.select()))

            for _ in range(3):
                with pytest.raises(Unavailable, match=r"^the database is damaged$"):
                    await database.read(read_accounts)
                with pytest.raises(Unavailable, match=r"^the database is damaged$"):
                    await database.write(add_account, "a")
    (record,) = caplog.records
    assert record.getMessage().startswith("the database is damaged: ")
    assert record.exc_info is None


def test_a_refusal_that_goes_on_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    refusals = Refusals(lambda: now[0])
    with caplog.at_level(logging.WARNING):
        for moment in (0.0, 1.0, AGAIN_SECONDS - 1, AGAIN_SECONDS, AGAIN_SECONDS + 1):
            now[0] = moment
            error = refusals.unavailable("the database is away", OSError("host 10.0.0.1\nport 1"))
            assert error.message == "the database is away"
    assert [record.getMessage() for record in caplog.records] == [
        "the database is away: host 10.0.0.1 port 1"
    ] * 2

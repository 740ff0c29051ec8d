"""Commands on a full or read-only disk: one line that names the disk and what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from cloudcore.clock import uuid7
from cloudcore.db.refusals import DiskFull
from cloudcore.keyring import create_root_key
from registry.cli.main import main
from registry.cli.server.run_server import check_disk
from registry.settings.settings import Settings
from tests.databases import planted
from tests.fault.small_disk import make_read_only, small_disk, take_the_rest

DISK_BYTES: Final = 8 << 20


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return an empty small disk."""
    monkeypatch.setenv("ENTREPOT_PUBLIC_URL", "http://registry.test")
    with small_disk(tmp_path / "disk", DISK_BYTES) as place:
        yield place


def made_on(disk: Path) -> Path:
    """Make an install on a disk, and return its data folder."""
    data = planted(disk / "data")
    command = ["init", "--account", "acme", "--admin-email", "a@example.com"]
    assert main([*command, "--data", str(data)]) == 0
    return data


@pytest.fixture
def data(disk: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return the data folder of an install on the small disk."""
    made = made_on(disk)
    capsys.readouterr()
    return made


def check_told(capsys: pytest.CaptureFixture[str], status: int, file: Path) -> None:
    told = capsys.readouterr().err
    assert told.endswith(f"entrepot: the disk that holds {file} is full; free some room\n"), told
    assert "Traceback" not in told
    assert status == 1


def test_an_install_is_not_begun(disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither are tables made in part: what was begun goes on once there is room."""
    taken, folder = take_the_rest(disk), disk / "data"
    init = ["init", "--account", "acme", "--admin-email", "a@example.com", "--data", str(folder)]
    for command in (["dev", "--port", "0", "--data", str(folder)], init):
        check_told(capsys, main(command), folder / "metadata.db")
    taken.unlink()
    assert main(init) == 0


def test_an_install_that_rests_is_read_and_not_changed(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The files that SQLite makes beside a database have kept their room."""
    taken, backup = take_the_rest(data.parent), str(tmp_path / "backup")
    for command in (["fsck"], ["gc", "orphans"], ["backup", backup]):
        assert main([*command, "--data", str(data)]) == 0
    capsys.readouterr()
    reset = ["reset-password", "a@example.com", "--data", str(data)]
    check_told(capsys, main(reset), data / "metadata.db")
    taken.unlink()
    assert main(reset) == 0


def test_a_database_without_the_files_beside_it_is_not_opened(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As one that was put there by hand; SQLite says "disk I/O error"."""
    for suffix in ("-wal", "-shm"):
        (data / f"metadata.db{suffix}").unlink()
    taken = take_the_rest(data.parent)
    for command in (["fsck"], ["serve", "--port", "0"], ["gc", "orphans"]):
        check_told(capsys, main([*command, "--data", str(data)]), data / "metadata.db")
    taken.unlink()
    assert main(["fsck", "--data", str(data)]) == 0


def test_a_change_that_does_not_fit_names_the_disk(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The database is open, as beside a server; its log cannot grow."""
    with closing(sqlite3.connect(data / "metadata.db")) as server:
        server.execute("SELECT count(*) FROM users").fetchone()
        taken = take_the_rest(data.parent)
        status = main(["reset-password", "a@example.com", "--data", str(data)])
        check_told(capsys, status, data / "metadata.db")
        taken.unlink()
    assert main(["reset-password", "a@example.com", "--data", str(data)]) == 0


def test_a_copy_that_does_not_fit_names_the_disk_it_goes_to(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backup = tmp_path / "backup"
    assert main(["backup", str(backup), "--include-root-key", "--data", str(data)]) == 0
    capsys.readouterr()
    take_the_rest(data.parent)
    restore = ["restore", str(backup), "--data", str(data.parent / "restored")]
    check_told(capsys, main(restore), data.parent / "restored")
    elsewhere = str(tmp_path / "begun")
    begun = ["init", "--account", "acme", "--admin-email", "a@example.com", "--data", elsewhere]
    assert main(begun) == 0
    capsys.readouterr()
    target = data.parent / "backup"
    assert main(["backup", str(target), "--data", elsewhere]) == 1
    assert f"the disk that holds {target}" in capsys.readouterr().err


def test_a_root_key_that_does_not_fit_names_its_file(disk: Path) -> None:
    take_the_rest(disk)
    with pytest.raises(OSError, match="No space left") as caught:
        create_root_key(disk / "root.key")
    assert caught.value.filename == str(disk / "root.key")
    assert [each.name for each in disk.iterdir()] == ["another program's"]
    assert "free some room" in DiskFull(Path(caught.value.filename)).advice


@pytest.mark.parametrize(
    "command",
    [["serve", "--port", "0"], ["fsck"], ["gc", "orphans"], ["backup", "{elsewhere}"]],
    ids=lambda command: command[0],
)
def test_an_install_on_a_disk_that_became_read_only(
    data: Path, tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """SQLite says "unable to open database file" where there are no files beside it."""
    for suffix in ("-wal", "-shm"):
        (data / f"metadata.db{suffix}").unlink()
    make_read_only(data.parent)
    named = [part.format(elsewhere=tmp_path / "backup") for part in command]
    assert main([*named, "--data", str(data)]) != 0
    told = capsys.readouterr().err
    assert f"entrepot: the disk that holds {data / 'metadata.db'} is read-only" in told
    assert told.endswith("mount it writable\n"), told


def test_a_database_elsewhere_does_not_notice_a_disk_that_became_read_only(
    disk: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nor that a worker was killed before: the file of its lock cannot be marked."""
    monkeypatch.setenv("ENTREPOT_DATABASE_URL", f"sqlite:///{tmp_path / 'metadata.db'}")
    data = made_on(disk)
    workers = data / "workers"
    workers.mkdir()
    (workers / uuid7()).write_bytes(Path("/proc/sys/kernel/random/boot_id").read_bytes())
    make_read_only(disk)
    capsys.readouterr()
    assert main(["serve", "--port", "0", "--data", str(data)]) != 0
    told = capsys.readouterr().err
    assert told == (
        f"entrepot: the disk that holds {data} is read-only; look in the system's log whether the"
        " disk has failed, and mount it writable\n"
    )


def test_a_read_only_disk_of_the_blobs_alone_stops_no_start(tmp_path: Path) -> None:
    """What is there can still be pulled."""
    settings = Settings(data=tmp_path)
    with small_disk(settings.blobs, DISK_BYTES) as disk:
        make_read_only(disk)
        check_disk(settings)

"""Commands on a read-only disk: one line that names the disk and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from cloudcore.clock import uuid7
from registry.cli.main import main
from registry.cli.server.run_server import check_disk
from registry.settings.settings import Settings
from tests.fault.small_disk import make_read_only, small_disk

DISK_BYTES: Final = 8 << 20


@pytest.mark.parametrize(
    "command",
    [["serve", "--port", "0"], ["fsck"], ["gc", "orphans"], ["backup", "{elsewhere}"]],
    ids=lambda command: command[0],
)
def test_an_install_on_a_disk_that_became_read_only(
    tmp_path: Path,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """SQLite says "unable to open database file" where there are no files beside it."""
    monkeypatch.setenv("ENTREPOT_PUBLIC_URL", "http://registry.test")
    with small_disk(tmp_path / "disk", DISK_BYTES) as disk:
        data = disk / "data"
        init = ["init", "--account", "acme", "--admin-email", "a@example.com"]
        assert main([*init, "--data", str(data)]) == 0
        for suffix in ("-wal", "-shm"):
            (data / f"metadata.db{suffix}").unlink()
        make_read_only(disk)
        capsys.readouterr()
        named = [part.format(elsewhere=tmp_path / "backup") for part in command]
        assert main([*named, "--data", str(data)]) != 0
    told = capsys.readouterr().err
    assert f"entrepot: the disk that holds {data / 'metadata.db'} is read-only" in told
    assert told.endswith("mount it writable\n"), told


def test_a_database_elsewhere_does_not_notice_a_disk_that_became_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor that a worker was killed before: the file of its lock cannot be marked."""
    monkeypatch.setenv("ENTREPOT_PUBLIC_URL", "http://registry.test")
    monkeypatch.setenv("ENTREPOT_DATABASE_URL", f"sqlite:///{tmp_path / 'metadata.db'}")
    with small_disk(tmp_path / "disk", DISK_BYTES) as disk:
        data = disk / "data"
        init = ["init", "--account", "acme", "--admin-email", "a@example.com"]
        assert main([*init, "--data", str(data)]) == 0
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

"""The size of a folder is found in bounded steps, and follows what changes."""

from __future__ import annotations

import subprocess
from pathlib import Path

from registry.composition.metrics import FolderSize


def made(folder: Path, files: int) -> Path:
    """Fill a folder with files of 5000 bytes, in folders of four."""
    for number in range(files):
        path = folder / str(number // 4) / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 5000)
    return folder


def disk_bytes(folder: Path) -> int:
    """Return what ``du`` finds below a folder, without the folder itself."""
    words = ["du", "--summarize", "--block-size=1", "--", *map(str, folder.iterdir())]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return sum(int(line.split()[0]) for line in done.stdout.splitlines())


def test_one_step_counts_a_small_folder_as_du_does(tmp_path: Path) -> None:
    folder = made(tmp_path / "data", 6)
    size = FolderSize([folder])
    assert size.count_on() == disk_bytes(folder) > 30_000
    (folder / "more").write_bytes(b"x" * 9000)
    assert size.count_on() == disk_bytes(folder) > 39_000


def test_a_step_looks_at_no_more_than_it_may(tmp_path: Path) -> None:
    folder = made(tmp_path / "data", 8)  # and two folders
    size = FolderSize([folder], step=4)
    assert [size.count_on() for _ in range(3)] == [None, None, disk_bytes(folder)]
    before = disk_bytes(folder)
    (folder / "more").write_bytes(b"x" * 9000)
    counted = [size.count_on() for _ in range(3)]
    assert counted == [before, before, disk_bytes(folder)]


def test_what_goes_meanwhile_and_folders_that_are_absent_are_skipped(tmp_path: Path) -> None:
    folder = made(tmp_path / "data", 1)
    size = FolderSize([tmp_path / "absent", folder], step=1)
    assert size.count_on() is None  # has seen the folder "0"
    (folder / "0" / "0").unlink()
    (folder / "0").rmdir()
    assert size.count_on() is not None


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    folder = made(tmp_path / "data", 1)
    made(tmp_path / "elsewhere", 20)
    before = FolderSize([folder]).count_on()
    assert before is not None
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    after = FolderSize([folder]).count_on()
    assert after is not None
    assert after - before <= 4096

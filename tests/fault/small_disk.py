"""A file system of a few megabytes, to be filled up."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.tools import require_tool


@contextmanager
def small_disk(place: Path, size: int, *, files: int = 0) -> Iterator[Path]:
    """Mount a file system of so many bytes at a place that is made, and return the place.

    It holds so many `files` and folders, or any number.
    """
    mount, umount = require_tool("mount"), require_tool("umount")
    place.mkdir()
    options = f"size={size},nr_inodes={files}"
    mounted = subprocess.run([mount, "-t", "tmpfs", "-o", options, "none", place], check=False)
    if mounted.returncode != 0:
        pytest.skip("a small disk cannot be mounted here: that takes root, and its capability")
    try:
        yield place
    finally:
        subprocess.run([umount, "-l", place], check=True)


def make_read_only(disk: Path) -> None:
    """Let nothing more be written to a disk on which no file is open."""
    subprocess.run([require_tool("mount"), "-o", "remount,ro", disk], check=True)


def free_bytes(disk: Path) -> int:
    """Return how many bytes are left."""
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


def take_the_rest(disk: Path) -> Path:
    """Fill a disk to its last byte, as another program does; return its file."""
    taken = disk / "another program's"
    with taken.open("wb", buffering=0) as file:
        while left := free_bytes(disk):
            file.write(bytes(left))
    return taken

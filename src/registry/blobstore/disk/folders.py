"""Open folders of a filesystem store, and the file with its database generation."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from registry.blobstore.disk.disk_io import closing_fd, make_folder, open_folder

_FOLDER_MODE: Final = 0o700
SHARDS: Final = tuple(f"{number:02x}" for number in range(256))
"""Folders of objects, by the last two hex digits of their ids."""


class Folders:
    """Descriptors of the folders below one root; files are opened relative to them.

    All folders of ``objects`` exist from the start, with durable entries, so that a commit flushes
    only one folder.
    """

    def __init__(self, root: Path) -> None:
        make_folder(root)
        self.root: Final = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        for name in ("uploads", "objects", "orphans"):
            _make(name, self.root)
        self.uploads: Final = open_folder("uploads", self.root)
        self.objects: Final = open_folder("objects", self.root)
        self.orphans: Final = open_folder("orphans", self.root)
        for name in SHARDS:
            _make(name, self.objects)
        # Not only when a folder was missing: an earlier start may have died before its flush.
        os.fsync(self.objects)
        os.fsync(self.root)

    def close(self) -> None:
        """Release the descriptors."""
        for descriptor in (self.orphans, self.objects, self.uploads, self.root):
            os.close(descriptor)


def shard(object_id: str) -> str:
    """Return the folder name of an object: the last two digits of its id, random in any UUID."""
    return object_id[-2:]


def object_path(object_id: str) -> str:
    """Return the path of an object relative to ``objects``."""
    return f"{shard(object_id)}/{object_id}"


def _make(name: str, parent: int) -> None:
    with suppress(FileExistsError):
        os.mkdir(name, _FOLDER_MODE, dir_fd=parent)


_GENERATION: Final = "generation"
_NEW_GENERATION: Final = "generation.new"
_LONGEST_GENERATION: Final = 64


def read_generation(root: int) -> str | None:
    """Return the generation in the file, or None if the file does not exist.

    For a damaged file, return a generation that no database has.
    """
    try:
        descriptor = os.open(_GENERATION, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=root)
    except FileNotFoundError:
        return None
    with closing_fd(descriptor):
        return os.read(descriptor, _LONGEST_GENERATION).decode("ascii", "replace").strip()


def forget_generation(root: Path) -> None:
    """Delete the saved generation of the store at `root`, so that the next database is accepted.

    Only a restoration may do this.
    """
    (root / _GENERATION).unlink(missing_ok=True)


def write_generation(root: int, generation: str) -> None:
    """Replace the generation in the file, atomically and durably."""
    with closing_fd(open_folder(".", root)) as folder:  # a new descriptor: it owns the lock
        fcntl.flock(folder, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):  # left by a process that died here
            os.unlink(_NEW_GENERATION, dir_fd=folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with closing_fd(os.open(_NEW_GENERATION, flags, 0o600, dir_fd=folder)) as descriptor:
            os.write(descriptor, f"{generation}\n".encode())
            os.fsync(descriptor)
        os.rename(_NEW_GENERATION, _GENERATION, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)

"""The file that holds the noted generation of the database."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from registry.blobstore.disk_io import open_folder

_NAME: Final = "generation"
_NEW: Final = "generation.new"
_LONGEST: Final = 64


def read(root: int) -> str | None:
    """Return the generation in the file, or None if the file does not exist.

    A damaged file gives a generation that no database knows.
    """
    try:
        descriptor = os.open(_NAME, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=root)
    except FileNotFoundError:
        return None
    try:
        return os.read(descriptor, _LONGEST).decode("ascii", "replace").strip()
    finally:
        os.close(descriptor)


def forget(root: Path) -> None:
    """Delete the file of the store at `root`, if there is one: its next database is the right one.

    Only for a store that is being restored.
    """
    (root / _NAME).unlink(missing_ok=True)


def write(root: int, generation: str) -> None:
    """Replace the generation in the file, atomically and durably."""
    folder = open_folder(".", root)  # a new descriptor: it owns the lock
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):  # left by a process that died here
            os.unlink(_NEW, dir_fd=folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = os.open(_NEW, flags, 0o600, dir_fd=folder)
        try:
            os.write(descriptor, f"{generation}\n".encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(_NEW, _NAME, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    finally:
        os.close(folder)

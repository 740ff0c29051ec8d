"""The folders of a filesystem store, created once and opened by descriptor."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from registry.blobstore.disk_io import make_folder, open_folder

_FOLDER_MODE: Final = 0o700
SHARDS: Final = tuple(f"{number:02x}" for number in range(256))
"""Folders of objects, by the last two hex digits of their ids."""


class Folders:
    """Descriptors of the folders below one root; files are opened relative to them.

    All folders of ``objects`` exist from the start, with durable entries, so that a commit flushes
    one folder only.
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
    """Return the folder of an object: the last two digits, random in a UUID of any version."""
    return object_id[-2:]


def object_path(object_id: str) -> str:
    """Return the path of an object below ``objects``."""
    return f"{shard(object_id)}/{object_id}"


def _make(name: str, parent: int) -> None:
    try:
        os.mkdir(name, _FOLDER_MODE, dir_fd=parent)
    except FileExistsError:
        return

"""The lock of deletions: while a backup holds it, no process deletes an object.

It is a lock of a folder's descriptor (``flock``), so it ends with the process that holds it.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from registry.blobstore.base import DeletionsHeld
from registry.blobstore.disk_io import open_folder

_FOLDER: Final = "objects"
PATIENCE_SECONDS: Final = 30.0
"""Time to wait for batches of deletions under way; whatever lasts longer is another backup."""
_LOOK_SECONDS: Final = 0.02


class HeldByAnother(Exception):
    """Another backup of the same blobs is under way."""


@contextmanager
def deleting(root: int) -> Iterator[None]:
    """Keep others from holding deletions during the block; `root` is the store's descriptor.

    Raises:
        DeletionsHeld: another process holds them.

    """
    folder = open_folder(_FOLDER, root)  # a new descriptor: it owns the lock
    try:
        if not _is_locked(folder, fcntl.LOCK_SH):
            raise DeletionsHeld
        yield
    finally:
        os.close(folder)


@contextmanager
def deletions_held(root: Path, patience_seconds: float = PATIENCE_SECONDS) -> Iterator[None]:
    """Hold all deletions in the store at `root` during the block. Blocks while some are under way.

    Raises:
        HeldByAnother: another process holds them.

    """
    folder = os.open(root / _FOLDER, os.O_RDONLY | os.O_DIRECTORY)
    try:
        given_up_at = time.monotonic() + patience_seconds
        while not _is_locked(folder, fcntl.LOCK_EX):
            if time.monotonic() > given_up_at:
                raise HeldByAnother
            time.sleep(_LOOK_SECONDS)
        yield
    finally:
        os.close(folder)


def _is_locked(folder: int, kind: int) -> bool:
    try:
        fcntl.flock(folder, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

"""Files and folders of this machine: atomic replacement, durable entries, full disks."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from tempfile import mkstemp
from typing import Final

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of a full disk."""


def replace_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace or create a file atomically; by default, only its owner may read it."""
    descriptor, unnamed = mkstemp(prefix=f".{path.name}.", dir=path.parent)  # of mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        Path(unnamed).replace(path)
    except BaseException:
        Path(unnamed).unlink(missing_ok=True)
        raise


def flush_folder(path: Path) -> None:
    """Make the entries of a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_at(path: Path, descriptor: int) -> bool:
    """Return False if the file or folder that is open is no longer at `path`."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False

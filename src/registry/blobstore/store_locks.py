"""Locks of a store in a bucket: those of all nodes, or of the one machine that has it.

Nodes share a PostgreSQL, which has their locks (`fleet_locks`). On SQLite all processes are of one
machine, and the locks are of files in its data folder (``flock``): they end with their process.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Protocol

from registry.blobstore.backups import HeldByAnother
from registry.blobstore.base import DeletionsHeld
from registry.blobstore.disk_io import disk_errors, make_folder
from registry.blobstore.fleet_locks import fleet_locks

FOLDER: Final = "locks"
_DELETIONS: Final = "deletions"
_LOOK_SECONDS: Final = 0.02


class HeldDeletions(Protocol):
    """Deletions that are held."""

    def check(self) -> None:
        """Raise if they are not held any more."""
        ...


class StoreLocks(Protocol):
    """The locks of one store."""

    def deleting(self) -> AbstractContextManager[None]:
        """Keep backups from beginning in the block.

        Raises:
            DeletionsHeld: a backup is under way, or begins.
            StoreUnavailable: nobody can tell.

        """
        ...

    def scan_alone(self) -> AbstractContextManager[bool]:
        """Hold the lock of orphan scans in the block; give False if another process has it.

        Raises:
            StoreUnavailable: nobody can tell.

        """
        ...

    def deletions_held(self, patience_seconds: float) -> AbstractContextManager[HeldDeletions]:
        """Hold the deletions of all stores in the block.

        Raises:
            HeldByAnother: another process holds them.

        """
        ...


class MachineLocks:
    """The locks of a store that only processes of this machine use. All calls block."""

    def __init__(self, data: Path, store: str) -> None:
        """Take the data folder, and a name of the `store` that no other has."""
        self._folder = data / FOLDER
        self._scan = f"orphans of {store}"

    @contextmanager
    def deleting(self) -> Iterator[None]:
        """Keep backups from beginning in the block (`StoreLocks.deleting`)."""
        with self._opened(_DELETIONS) as descriptor:
            if not _is_locked(descriptor, fcntl.LOCK_SH):
                raise DeletionsHeld
            yield

    @contextmanager
    def scan_alone(self) -> Iterator[bool]:
        """Hold the lock of orphan scans in the block (`StoreLocks.scan_alone`)."""
        with self._opened(self._scan) as descriptor:
            yield _is_locked(descriptor, fcntl.LOCK_EX)

    @contextmanager
    def deletions_held(self, patience_seconds: float) -> Iterator[HeldDeletions]:
        """Hold the deletions in the block (`StoreLocks.deletions_held`)."""
        with self._opened(_DELETIONS) as descriptor:
            given_up_at = time.monotonic() + patience_seconds
            while not _is_locked(descriptor, fcntl.LOCK_EX):
                if time.monotonic() > given_up_at:
                    raise HeldByAnother
                time.sleep(_LOOK_SECONDS)
            yield _Held()

    @contextmanager
    def _opened(self, name: str) -> Iterator[int]:
        with disk_errors():
            make_folder(self._folder)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self._folder / name, flags, 0o600)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


class _Held:
    """A lock of a file, which nobody can take away."""

    def check(self) -> None:
        """Do nothing."""


def store_locks(database: str, data: Path, store: str) -> StoreLocks:
    """Return the locks of a store in a bucket, by the database at a URL and the data folder."""
    return fleet_locks(database, store) or MachineLocks(data, store)


def _is_locked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

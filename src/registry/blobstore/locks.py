"""Locks of a store shared by processes: in PostgreSQL for many nodes, else in files.

Nodes that share a PostgreSQL lock there (`FleetLocks`); stores on disk also lock files
(`registry.blobstore.backups`). With SQLite all processes are on one machine: then a store in a
bucket locks files in the data folder (``flock``). These locks end with their process.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cloudcore.db.opening import is_postgresql
from cloudcore.errors import Unavailable
from registry.blobstore.backups import HeldByAnother, lock_alone
from registry.blobstore.base import DeletionsHeld
from registry.blobstore.disk.disk_io import closing_fd, disk_errors, make_folder, try_lock
from registry.errors import StoreUnavailable

if TYPE_CHECKING:
    from cloudcore.db.postgresql_locks import HeldLock

_DELETIONS: Final = "deletions"
_NOT_KNOWN: Final = "the database cannot say now whether other nodes let this happen"

_log = logging.getLogger(__name__)


class FleetLocks:
    """The locks of one store, for the processes of all nodes. All calls block."""

    def __init__(self, url: str, store: str) -> None:
        """Use the database at `url`; `store` is the unique name of the store."""
        # Only installs on PostgreSQL load its driver.
        from cloudcore.db.postgresql_locks import LockTaken, SharedLock  # noqa: PLC0415

        self._taken = LockTaken
        self._deletions = SharedLock(url, _DELETIONS)
        self._scan = SharedLock(url, f"orphans of {store}")

    @contextmanager
    def deleting(self) -> Iterator[None]:
        """Prevent backups from beginning during the block. A lost connection ends the protection.

        Raise `DeletionsHeld` if a backup holds deletions; `StoreUnavailable` if the database cannot
        be reached.
        """
        with ExitStack() as held:
            if not self._enter(self._deletions.shared(), held):
                raise DeletionsHeld
            yield

    @contextmanager
    def scan_alone(self) -> Iterator[bool]:
        """Hold the lock of orphan scans in the block; yield False if another process has it.

        Raise `StoreUnavailable` if the database cannot be reached.
        """
        with ExitStack() as held:
            yield self._enter(self._scan.alone(), held)

    @contextmanager
    def deletions_held(self, patience_seconds: float) -> Iterator[HeldLock]:
        """Hold the deletions of all nodes and stores during the block; yield the lock.

        Raise `HeldByAnother` if other processes hold the lock for longer than `patience_seconds`,
        `Unavailable` if the database cannot be reached.
        """
        with ExitStack() as held:
            try:
                lock = held.enter_context(self._deletions.alone_within(patience_seconds))
            except self._taken:
                raise HeldByAnother from None
            yield lock

    def _enter(self, lock: AbstractContextManager[object], held: ExitStack) -> bool:
        """Take a lock until `held` is closed; return False if another process has the lock."""
        try:
            held.enter_context(lock)
        except self._taken:
            return False
        except Unavailable as error:
            _log.warning("%s", error)
            raise StoreUnavailable(_NOT_KNOWN) from error
        return True


def fleet_locks(database: str, store: str) -> FleetLocks | None:
    """Return the locks that nodes share in the database at a URL; None for SQLite."""
    return FleetLocks(database, store) if is_postgresql(database) else None


FOLDER: Final = "locks"


class MachineLocks:
    """The locks of a store that only processes of this machine use. All calls block."""

    def __init__(self, data: Path, store: str) -> None:
        """Use lock files in the data folder; `store` is the unique name of the store."""
        self._folder = data / FOLDER
        self._scan = f"orphans of {store}"

    @contextmanager
    def deleting(self) -> Iterator[None]:
        """Prevent backups from beginning during the block (`FleetLocks.deleting`)."""
        with self._opened(_DELETIONS) as descriptor:
            if not try_lock(descriptor, fcntl.LOCK_SH):
                raise DeletionsHeld
            yield

    @contextmanager
    def scan_alone(self) -> Iterator[bool]:
        """Hold the lock of orphan scans in the block (`FleetLocks.scan_alone`)."""
        with self._opened(self._scan) as descriptor:
            yield try_lock(descriptor, fcntl.LOCK_EX)

    @contextmanager
    def deletions_held(self, patience_seconds: float) -> Iterator[None]:
        """Hold all deletions during the block (`FleetLocks.deletions_held`)."""
        with self._opened(_DELETIONS) as descriptor:
            lock_alone(descriptor, patience_seconds)
            yield

    @contextmanager
    def _opened(self, name: str) -> Iterator[int]:
        with disk_errors():
            make_folder(self._folder)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self._folder / name, flags, 0o600)
        with closing_fd(descriptor):
            yield descriptor


StoreLocks = FleetLocks | MachineLocks


def store_locks(database: str, data: Path, store: str) -> StoreLocks:
    """Return the locks of a store in a bucket: in PostgreSQL, or files in the data folder."""
    return fleet_locks(database, store) or MachineLocks(data, store)

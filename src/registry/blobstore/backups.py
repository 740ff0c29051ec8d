"""The lock with which a backup prevents deletions, and records of when backups ran, for metrics.

A backup is another process, and may write to a folder that the server cannot reach. While a backup
*holds deletions*, by a lock, no process of this machine deletes an object (for other machines:
`locks.FleetLocks`). The locks here belong to a descriptor (``flock``), so they end with their
process.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from cloudcore.clock import system_clock
from registry.blobstore.base import DeletionsHeld
from registry.blobstore.disk.disk_io import closing_fd, open_folder, try_lock

_FOLDER: Final = "objects"
PATIENCE_SECONDS: Final = 30.0
"""Time to wait for running batches of deletions; a lock held longer belongs to another backup."""


class HeldByAnother(Exception):
    """Another backup, or a running deletion, holds the lock of deletions."""


@contextmanager
def deleting(root: int) -> Iterator[None]:
    """Prevent others from holding deletions during the block; `root` is the store's descriptor.

    Raise `DeletionsHeld` if another process already holds deletions.
    """
    with closing_fd(open_folder(_FOLDER, root)) as folder:  # a new descriptor: it owns the lock
        if not try_lock(folder, fcntl.LOCK_SH):
            raise DeletionsHeld
        yield


@contextmanager
def deletions_held(root: Path, patience_seconds: float = PATIENCE_SECONDS) -> Iterator[None]:
    """Hold all deletions in the store at `root` during the block. Blocks while deletions run.

    Raise `HeldByAnother` if running deletions, or another backup, hold the lock for longer than
    `patience_seconds`.
    """
    with closing_fd(os.open(root / _FOLDER, os.O_RDONLY | os.O_DIRECTORY)) as folder:
        lock_alone(folder, patience_seconds)
        yield


def lock_alone(descriptor: int, patience_seconds: float) -> None:
    """Lock a descriptor exclusively; raise `HeldByAnother` after `patience_seconds`. Blocks."""
    given_up_at = time.monotonic() + patience_seconds
    while not try_lock(descriptor, fcntl.LOCK_EX):
        if time.monotonic() > given_up_at:
            raise HeldByAnother
        time.sleep(_LOOK_SECONDS)


_RUNNING: Final = "backup-running"
_FINISHED: Final = "backup-finished"
_LONGEST: Final = 32
_LOOK_SECONDS: Final = 0.02


class BackupTimes(NamedTuple):
    """When backups ran, in microseconds since the epoch."""

    begun_at: int | None
    """The start of the running backup; None if none is running."""
    finished_at: int | None
    """The end of the last complete backup; None if there was none."""


@contextmanager
def recorded_backup(
    root: Path, clock: Callable[[], int] = system_clock
) -> Iterator[Callable[[], None]]:
    """Record in the store at `root` that a backup runs during the block.

    Yield a function to call once the backup is complete, which records its end. Failures to write a
    record, as on a full disk, are ignored: a backup matters more. A second backup at the same time
    is not recorded.
    """
    descriptor = None
    with suppress(OSError):
        descriptor = os.open(root / _RUNNING, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _lock(descriptor)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % clock(), 0)

    def complete() -> None:
        with suppress(OSError):
            (root / f"{_FINISHED}.new").write_text(f"{clock()}\n")
            (root / f"{_FINISHED}.new").replace(root / _FINISHED)

    try:
        yield complete
    finally:
        if descriptor is not None:
            os.close(descriptor)


def backup_times(root: Path) -> BackupTimes:
    """Return when backups of the store at `root` ran. Blocks.

    Raise `OSError` if the records cannot be read.
    """
    return BackupTimes(_read(root / _RUNNING, locked=True), _read(root / _FINISHED, locked=False))


def _read(file: Path, *, locked: bool) -> int | None:
    """Return the time in a record, or None if there is no record.

    With `locked`, return None also if no process holds the record's lock.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with closing_fd(descriptor):
        if locked and try_lock(descriptor, fcntl.LOCK_SH):
            return None
        text = os.read(descriptor, _LONGEST).strip()
    return int(text) if text.isdigit() else None


def _lock(descriptor: int) -> None:
    """Lock a record; if another process is just testing the lock, retry once."""
    if not try_lock(descriptor, fcntl.LOCK_EX):
        time.sleep(_LOOK_SECONDS)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

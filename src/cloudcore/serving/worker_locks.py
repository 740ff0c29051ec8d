"""A locked file per worker process, by which other processes of this machine see that it has died.

The kernel releases the lock when the process ends for any reason, so a file that can be locked
belongs to a dead worker. This holds only for files written since this machine was booted: several
machines may share the folder, and a network file system may lose their locks.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

KEPT_SECONDS: Final = 60
"""Seconds for which the file of a dead worker is kept: longer than any lease of it."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_NEW, _DEAD = ".new", ".dead"


class WorkerLocks:
    """The files of worker processes in one folder, each named by its worker's id."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        """Create the folder if it is missing; `clock` returns seconds since the epoch."""
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = folder
        self._clock = clock
        self._boot_id = _BOOT_ID.read_bytes()

    @contextmanager
    def hold(self, worker_id: str) -> Iterator[None]:
        """Hold the lock of a new worker id in the block; delete the files of long dead workers."""
        self._forget_dead()
        path = self._folder / worker_id
        new = path.with_suffix(_NEW)
        descriptor = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, self._boot_id)
            new.rename(path)  # after it is locked: an unlocked file means a dead worker
            yield
        finally:
            for each in (new, path):
                each.unlink(missing_ok=True)
            os.close(descriptor)

    def is_dead(self, worker_id: str) -> bool:
        """Return True if a worker of this machine has died; False if it is alive or unknown.

        Unknown are workers of other machines, and those that have exited normally.
        """
        for name in (worker_id, worker_id + _DEAD):
            with suppress(FileNotFoundError):
                return self._is_free(self._folder / name)
        return False

    def _is_free(self, path: Path) -> bool:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            if os.read(descriptor, len(self._boot_id) + 1) != self._boot_id:
                return False
            return _can_lock(descriptor)
        finally:
            os.close(descriptor)

    def _forget_dead(self) -> None:
        """Mark the files of dead workers; delete those marked over `KEPT_SECONDS` ago."""
        before = self._clock() - KEPT_SECONDS
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):  # another worker does the same
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    self._forget(path, descriptor, before)
                finally:
                    os.close(descriptor)

    def _forget(self, path: Path, descriptor: int, before: float) -> None:
        if path.suffix == _NEW and os.fstat(descriptor).st_mtime > before:
            return  # about to be locked
        if not _can_lock(descriptor):
            return
        if path.suffix not in (_NEW, _DEAD):
            now = self._clock()
            os.utime(descriptor, (now, now))
            path.rename(path.with_suffix(_DEAD))
        elif os.fstat(descriptor).st_mtime <= before:
            path.unlink()


def _can_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

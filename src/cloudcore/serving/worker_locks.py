"""A locked file for each worker process: others of this machine see at once that it has died.

The kernel drops the lock of a process that ends, however it ends. So a file that can be locked is
a dead worker's. Only files written since this machine was started prove anything: the folder may be
shared by machines, whose locks a network file system can lose.
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
"""How long the file of a dead worker stays: longer than any lease it may have held."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_NEW, _DEAD = ".new", ".dead"


class WorkerLocks:
    """The files of worker processes in one folder, each named by its worker's id."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        """Make the folder; `clock` returns seconds since the epoch."""
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = folder
        self._clock = clock
        self._boot_id = _BOOT_ID.read_bytes()

    @contextmanager
    def hold(self, worker_id: str) -> Iterator[None]:
        """Be seen alive under a new id in the block; forget workers that died long ago."""
        self._forget_dead()
        path = self._folder / worker_id
        new = path.with_suffix(_NEW)
        descriptor = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, self._boot_id)
            new.rename(path)  # locked before anybody can find it
            yield
        finally:
            for each in (new, path):
                each.unlink(missing_ok=True)
            os.close(descriptor)

    def is_dead(self, worker_id: str) -> bool:
        """Return True if a worker of this machine has died; False if it lives, or is unknown.

        A worker that ended well, and one of another machine, are unknown.
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
        """Mark the files of dead workers, and remove those marked a while ago."""
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

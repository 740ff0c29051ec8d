"""A locked file per worker process, by which other processes of this machine see that it has died.

The kernel releases the lock when the process ends for any reason, so a file that can be locked
belongs to a dead worker. This holds only for files made since this machine was booted: several
machines may share the folder, and a network file system may lose their locks. So a file is named
by its worker's id and by the boot. It has no content, and needs no room on a full disk.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from cloudcore.db.room import NO_ROOM

KEPT_SECONDS: Final = 90
"""Seconds for which the file of a dead worker is kept: longer than any lease of it."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_NEW, _DEAD = ".new", ".dead"

_log = logging.getLogger(__name__)


class WorkerLocks:
    """The files of worker processes in one folder, each named by its worker's id and the boot."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        """Create the folder if it is missing; `clock` returns seconds since the epoch."""
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = folder
        self._clock = clock
        self._boot_id = _BOOT_ID.read_text().strip()

    @contextmanager
    def hold(self, worker_id: str) -> Iterator[None]:
        """Hold the lock of a new worker id in the block; delete the files of long dead workers.

        On a disk that has no room even for an empty file, hold none: others wait for the end of
        this worker's leases when it dies.
        """
        try:
            self._forget_dead()
            held = self._held(worker_id)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            _log.warning("a death of this worker will be noticed late: %s", error)
            yield
            return
        try:
            yield
        finally:
            self._path(worker_id).unlink(missing_ok=True)
            os.close(held)

    def _held(self, worker_id: str) -> int:
        """Make the file of a worker, locked, and return its descriptor."""
        path = self._path(worker_id)
        new = path.with_name(path.name + _NEW)
        descriptor = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            new.rename(path)  # after it is locked: an unlocked file means a dead worker
        except BaseException:
            new.unlink(missing_ok=True)
            os.close(descriptor)
            raise
        return descriptor

    def _path(self, worker_id: str) -> Path:
        return self._folder / f"{worker_id}@{self._boot_id}"

    def is_dead(self, worker_id: str) -> bool:
        """Return True if a worker of this machine has died; False if it is alive or unknown.

        Unknown are workers of other machines, and those that have exited normally.
        """
        path = self._path(worker_id)
        for each in (path, path.with_name(path.name + _DEAD)):
            with suppress(FileNotFoundError):
                return _is_free(each)
        return False

    def dead(self) -> list[str]:
        """Return the ids of the workers of this machine that are known to have died."""
        found = (path.name.partition("@") for path in self._folder.iterdir())
        boots = (self._boot_id, self._boot_id + _DEAD)
        return [name for name, _, boot in found if boot in boots and self.is_dead(name)]

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
            path.rename(path.with_name(path.name + _DEAD))
        elif os.fstat(descriptor).st_mtime <= before:
            path.unlink()


def _is_free(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return _can_lock(descriptor)
    finally:
        os.close(descriptor)


def _can_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

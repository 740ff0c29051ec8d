"""Free the leases of worker processes that have died, before the leases end.

Each worker process locks a file, so that other processes of this machine can detect its death. The
kernel releases the lock when the process ends for any reason, so a file that can be locked belongs
to a dead worker. This holds only for files made since this machine was booted: several machines may
share the folder, and a network file system may lose their locks. So the name of a file contains the
worker's id and the id of the boot. The file is empty, so it needs no space on a full disk.

A job or chore of a dead worker is due at once. But the work may have caused the death. So a job
that has had more than `QUICK_ATTEMPTS` attempts at its step, and a chore whose last turn also ended
by death, wait for the end of the lease. Otherwise processes might die again and again, with no time
for other work.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import sqlalchemy as sa

from cloudcore.clock import Clock
from cloudcore.db.base import Connection, Database
from cloudcore.db.rows import json_text
from cloudcore.db.statement import Statement, listed, text_list
from cloudcore.errors import PlatformError
from cloudcore.files import NO_ROOM
from cloudcore.jobs.background import record_before_stop, repeated
from cloudcore.jobs.faults import Fault, next_fault
from cloudcore.jobs.tables import NO_LEASE, jobs, schedules

KEPT_SECONDS: Final = 90
"""Seconds for which the file of a dead worker is kept: longer than any of its leases."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_NEW, _DEAD = ".new", ".dead"


class WorkerLocks:
    """The files of worker processes in one folder, each named by its worker's id and the boot."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        """Create the folder if it is missing; `clock` returns seconds since the epoch."""
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = folder
        self._clock = clock
        self._boot_id = _BOOT_ID.read_text().strip()

    @contextmanager
    def locked(self, worker_id: str) -> Iterator[None]:
        """Lock the file of a new worker during the block; delete those of workers long dead.

        If the disk has no space even for an empty file, lock none: should this worker die, other
        workers wait for the end of its leases.
        """
        try:
            self._forget_dead()
            held = self._create_locked(worker_id)
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

    def _create_locked(self, worker_id: str) -> int:
        """Create and lock the file of a worker; return its descriptor."""
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

        Workers of other machines, and those that have exited normally, are unknown.
        """
        path = self._path(worker_id)
        for each in (path, path.with_name(path.name + _DEAD)):
            with suppress(FileNotFoundError):
                return _is_free(each)
        return False

    def dead(self) -> list[str]:
        """Return the ids of workers of this machine that have died."""
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


QUICK_ATTEMPTS: Final = 3
"""A worker's death frees a job at once if the job has had at most so many attempts at its step,
failed ones included."""
_CHECK_SECONDS: Final = 5
TURN_LOST: Final = ("WORKER_LOST", "the worker died, or was stopped, during the turn")

_log = logging.getLogger(__name__)

_j, _s = jobs.c, schedules.c
_FREE_JOBS: Final = Statement(
    sa.update(jobs)
    .where(
        _j.lease_holder.in_(listed("holders")),
        _j.lease_holder.is_not(None),
        _j.attempts <= sa.literal_column(str(QUICK_ATTEMPTS)),
    )
    .values(due_at=sa.bindparam("now"), **NO_LEASE)
)
_LOCK_TURNS: Final = Statement(
    # There are about ten rows.
    sa.select(_s.name, _s.fault).where(_s.lease_holder.in_(listed("holders"))).with_for_update()
)
_FREE_TURN: Final = Statement(
    sa.update(schedules)
    .where(_s.name == sa.bindparam("chore"))
    .values(
        due_at=sa.bindparam("now"),
        fault=sa.bindparam("fault"),
        **NO_LEASE,
    )
)


def _free_leases(tx: Connection, holders: Sequence[str], now: int) -> None:
    """Make the jobs and chores of dead workers due, and their lease tokens invalid.

    Jobs with more than `QUICK_ATTEMPTS` attempts, and chores whose last turn also ended by death,
    stay leased.
    """
    tx.announce()
    tx.execute(_FREE_JOBS, holders=text_list(holders), now=now)
    for name, row in tx.rows(_LOCK_TURNS, holders=text_list(holders)):
        known = msgspec.json.decode(row, type=Fault) if row else None
        if known is not None and known.code == TURN_LOST[0]:
            continue
        fault = json_text(next_fault(known, *TURN_LOST, now))
        tx.execute(_FREE_TURN, chore=name, fault=fault, now=now)


@dataclass(eq=False, slots=True)
class DeadHolders:
    """Frees the leases of workers that have died, once for each worker."""

    database: Database
    clock: Clock
    dead: Callable[[], Collection[str]]
    """Returns the ids of dead workers; some may have died long ago."""
    _freed: set[str] = field(init=False, default_factory=set)

    async def look(self) -> None:
        """Free the leases of workers that have died since the last call.

        Raise `Unavailable` if the database is not available now; the next call tries again.
        """
        dead = set(self.dead())
        self._freed &= dead
        if new := dead - self._freed:
            await self.free(*new)
            self._freed |= new

    async def free(self, *holders: str) -> None:
        """Free the leases of workers that are known to have stopped."""
        await self.database.write_relaxed(_free_leases, sorted(holders), self.clock())


@asynccontextmanager
async def noticing_deaths(dead: DeadHolders, worker_id: str) -> AsyncIterator[None]:
    """Free the leases of dead workers, now and during the block; after it, those of `worker_id`."""
    try:
        await dead.look()
    except PlatformError as error:
        _log.warning("what dead workers held is not free yet: %s", error)
    async with repeated(_CHECK_SECONDS, dead.look):
        yield
    await record_before_stop(partial(dead.free, worker_id), "that its leases of jobs end")

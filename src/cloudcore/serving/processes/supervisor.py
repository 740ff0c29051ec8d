"""Run several worker processes on one listening socket: start, restart and stop them.

A page of a forked worker's memory stays shared until a process writes to it; then the process gets
a copy. Without `settle`, a worker soon copies most of what it inherited: its garbage collector
writes to the head of each object.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import logging
import mmap
import os
import re
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from cloudcore.serving.limits import give_back_unused

_M_ARENA_MAX: Final = -8
"""mallopt(3)."""
_ARENAS: Final = 2
_MAPPINGS: Final = Path("/proc/self/smaps")
_MAPPING: Final = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ (\d+)")
_UNWRITTEN: Final = re.compile(rb"Anonymous: +0 kB")


def limit_arenas() -> None:
    """Make all threads share two malloc arenas; call this before the first thread starts.

    Otherwise each thread gets an arena, up to eight for each processor, and memory freed in one
    cannot be used by others. The interpreter's lock leaves little contention.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_ARENA_MAX, _ARENAS)


def settle() -> None:
    """Prepare the memory of this process for forks; call it after everything is loaded."""
    gc.collect()
    gc.freeze()  # the collector leaves alone what is there now
    _unmap_code()


def release_unused() -> None:
    """Free memory left from a worker's start; exempt the existing objects from collections."""
    _unmap_code()
    gc.collect()
    gc.freeze()
    give_back_unused()


def _unmap_code() -> None:
    """Make the kernel unmap library code, much of which ran only while libraries were loaded.

    Code that is needed again is mapped again, from the kernel's page cache. Pages that were
    written, such as the dynamic linker's address tables, are not unmapped.
    """
    if not _MAPPINGS.exists() or not hasattr(mmap, "MADV_DONTNEED"):
        return
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    with _MAPPINGS.open("rb") as smaps:
        unwritten = tuple(_unwritten_code(smaps))
    for start, size in unwritten:
        libc.madvise(start, size, mmap.MADV_DONTNEED)


def _unwritten_code(smaps: Iterable[bytes]) -> Iterator[tuple[int, int]]:
    """Yield (start, size) of each file mapping that this process has only read.

    The lines are read one by one: otherwise the worker would retain the memory of the whole text,
    0.5 MiB.
    """
    mapping = None
    for line in smaps:
        if found := _MAPPING.match(line):
            start, end, rights, inode = found.groups()
            is_code = rights in (b"r-xp", b"r--p") and inode != b"0"
            mapping = (int(start, 16), int(end, 16) - int(start, 16)) if is_code else None
        elif mapping is not None and _UNWRITTEN.match(line):
            yield mapping


logger = logging.getLogger("cloudcore.serving")

WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
STARTING_TICK_SECONDS = 0.02
TICK_SECONDS = 1.0
FIRST_RESTART_DELAY = 1.0
LAST_RESTART_DELAY = 30.0
ORPHAN_SECONDS = 2.0
"""Seconds for which a worker drains if its supervisor was killed: few, since uploads that continue
through old workers would delay the start of the next server on the same machine."""
AGAIN_SECONDS = 0.1
"""Seconds between the two SIGTERM that make a worker drain at once. If the second came sooner, the
worker would take both for one."""
STARTUP_FAILURE = 3

Work = Callable[[int, Callable[[], object]], int]
"""Takes a slot number and a callback for readiness; returns an exit status."""


@dataclass(slots=True)
class WorkerProcess:
    """A forked worker, with its slot number."""

    slot: int
    pid: int
    ready_pipe: int
    is_ready: bool = False


class Supervisor:
    """Forks and watches workers; has no threads, event loop or application itself."""

    def __init__(
        self,
        work: Work,
        workers: int,
        sockets: Sequence[socket.socket],
        patience: float,
        *,
        reloads: bool = False,
    ) -> None:
        """Close `sockets` when stopping; kill workers `patience` seconds after SIGTERM.

        If the work `reloads` on SIGHUP, pass that signal on; otherwise SIGHUP ends the process, as
        usual.
        """
        self._watched = (*WATCHED, signal.SIGHUP) if reloads else WATCHED
        self._work = work
        self._slots = range(workers)
        self._sockets = sockets
        self._patience = patience
        self._workers: dict[int, WorkerProcess] = {}
        self._restarts: dict[int, float] = {}  # slot -> when to fork again
        self._lifeline = os.pipe()
        self._reported = False

    def run(self, on_ready: Callable[[], None]) -> int:
        """Keep the workers running until a signal; return the exit status."""
        signal.pthread_sigmask(signal.SIG_BLOCK, self._watched)
        settle()
        for slot in self._slots:
            self._fork(slot)
        while True:
            tick = TICK_SECONDS if self._reported else STARTING_TICK_SECONDS
            received = signal.sigtimedwait(self._watched, tick)
            if received is not None and received.si_signo == signal.SIGHUP:
                self._tell_all(signal.SIGHUP)
            elif received is not None and received.si_signo != signal.SIGCHLD:
                return self._stop(hurries=received.si_signo == signal.SIGINT)
            self._note_ready(on_ready)
            if not self._replace_dead():
                self._stop(hurries=True)  # no balancer sends to a server that has never been ready
                return STARTUP_FAILURE

    def _fork(self, slot: int) -> None:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._be_worker(slot, writing)
        os.close(writing)
        os.set_blocking(reading, False)
        self._workers[slot] = WorkerProcess(slot, pid, reading)

    def _be_worker(self, slot: int, ready_pipe: int) -> NoReturn:
        """Run the work in the forked process, then exit."""
        status = 1
        try:
            # A terminal sends SIGINT to all processes; the supervisor sends SIGTERM to the workers.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            if signal.SIGHUP in self._watched:  # until it serves, it has nothing to load again
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._watched)
            os.close(self._lifeline[1])
            threading.Thread(target=_end_with_parent, args=self._lifeline[:1], daemon=True).start()
            status = self._work(slot, functools.partial(os.write, ready_pipe, b"1"))
        except BaseException:  # noqa: BLE001 - the process exits after any error
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _note_ready(self, on_ready: Callable[[], None]) -> None:
        """Call `on_ready` once all workers accept connections."""
        for worker in self._workers.values():
            if not worker.is_ready:
                with contextlib.suppress(BlockingIOError):
                    worker.is_ready = bool(os.read(worker.ready_pipe, 1))
        if not self._reported and all(worker.is_ready for worker in self._workers.values()):
            self._reported = True
            on_ready()

    def _replace_dead(self) -> bool:
        """Restart dead workers; return False if one failed to start."""
        for worker in tuple(self._workers.values()):
            status = _exit_status(worker)
            if status is None:
                continue
            self._forget(worker)
            if not worker.is_ready and not self._reported:
                logger.error("worker %d did not start (status %d)", worker.pid, status)
                return False
            delay = FIRST_RESTART_DELAY if worker.is_ready else LAST_RESTART_DELAY
            logger.error("worker %d died (status %d); restarting", worker.pid, status)
            self._restarts[worker.slot] = time.monotonic() + delay
        for slot, moment in tuple(self._restarts.items()):
            if time.monotonic() >= moment:
                del self._restarts[slot]
                self._fork(slot)
        return True

    def _forget(self, worker: WorkerProcess) -> None:
        del self._workers[worker.slot]
        os.close(worker.ready_pipe)

    def _stop(self, *, hurries: bool = False) -> int:
        """Drain the workers, at once if `hurries`; return 0 if all ended well and in time."""
        for listener in self._sockets:
            listener.close()
        self._tell_all(signal.SIGTERM)
        if hurries:
            time.sleep(AGAIN_SECONDS)
            self._tell_all(signal.SIGTERM)
        deadline = time.monotonic() + self._patience
        status = 0
        while self._workers:
            received = signal.sigtimedwait(WATCHED, TICK_SECONDS)
            impatient = received is not None and received.si_signo == signal.SIGINT
            if received is not None and received.si_signo == signal.SIGTERM:
                self._tell_all(signal.SIGTERM)
            for worker in tuple(self._workers.values()):
                if impatient or time.monotonic() > deadline:
                    os.kill(worker.pid, signal.SIGKILL)
                ended = _exit_status(worker)
                if ended is not None:
                    self._forget(worker)
                    status = status or ended
        return status

    def _tell_all(self, sig: int) -> None:
        for worker in self._workers.values():
            os.kill(worker.pid, sig)


def _exit_status(worker: WorkerProcess) -> int | None:
    """Return a worker's exit status (negative for a signal), or None if it still runs."""
    pid, status = os.waitpid(worker.pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if pid else None


def _end_with_parent(lifeline: int) -> None:
    """Wait until the supervisor has ended; then drain this process at once, and end it.

    The supervisor holds the other end of the pipe `lifeline`.
    """
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(AGAIN_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ORPHAN_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)

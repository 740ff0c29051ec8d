"""Bulk threads: a few threads that move large bodies between sockets and files.

A job runs in a thread while its client keeps up. When the socket is not ready for a few
milliseconds, or at once if other jobs wait for a thread, the job is parked: the event loop watches
the socket and resubmits the job when it is ready. So slow clients occupy no thread and cannot block
the bounded pool.

Among jobs that wait for a thread, the one that has moved the fewest bytes goes first; a new job
starts from the current count of the others (start-time fair queueing). So no job starves, and jobs
that begin together stay together: clients that fetch one object at the same time then share what is
decrypted for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import fcntl
import itertools
import math
import queue
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar, TypeVarTuple, Unpack

from cloudcore.serving.limits import MIB, ServerLimits, give_back_unused
from cloudcore.serving.tls.stream import TlsLoan

CATCH_UP_BYTES = 16 * MIB
"""Maximum bytes by which a job may count as behind the others after its client was not ready. A job
that is behind goes first until it has caught up."""

IDLE_SECONDS = 30.0
"""Seconds over which the maximum number of busy threads is measured. Threads beyond it then end and
free their buffers, some 2.5 MiB for each that has sealed or decrypted. Otherwise the threads of a
short peak would stay."""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def queued_bytes(sock: socket.socket | TlsLoan, request: int) -> int:
    """Return the number of bytes in a socket's kernel queue, or 0 if unknown.

    `request` is ``FIONREAD`` for unread bytes, or ``TIOCOUTQ`` for bytes that the peer has not
    acknowledged (tcp(7)).
    """
    answer = bytearray(4)
    try:
        fcntl.ioctl(sock, request, answer)
    except OSError:
        return 0
    return int.from_bytes(answer, sys.byteorder, signed=True)


class BulkStep(enum.Enum):
    """What a job needs after one run in a thread."""

    DONE = "nothing is left to move"
    PARK = "the socket is not ready: let the event loop wait for it"
    YIELD = "others wait for this thread: queue behind them"


class Scratch(NamedTuple):
    """Buffers of one thread, reused for every job, as new large buffers cost page faults."""

    unit: memoryview
    raw: bytearray


_Turn = tuple[float, int, "BulkJob[Any] | None"]


class BulkPool:
    """A bounded pool of daemon threads, which start on demand and end when they are idle."""

    def __init__(
        self,
        name: str,
        threads: int,
        scratch_bytes: int = 0,
        *,
        idle_seconds: float = IDLE_SECONDS,
        on_fewer: Callable[[], object] = give_back_unused,
    ) -> None:
        """Allow up to `threads` threads, each with two buffers of `scratch_bytes`.

        `on_fewer` is called when idle threads have ended and their buffers are free.
        """
        self._name = name
        self._idle_seconds = idle_seconds
        self._on_fewer = on_fewer
        self._limit = threads
        self._scratch_bytes = scratch_bytes
        self._kept_bytes = 0
        self.jobs: set[BulkJob[Any]] = set()  # those that have not ended (event loop only)
        self._queue: queue.PriorityQueue[_Turn] = queue.PriorityQueue()
        self._submitted = itertools.count()
        self._clock = 0
        """The highest `BulkJob.turn` that a thread has taken, in bytes."""
        self._lock = threading.Lock()
        self._idle = 0
        self._threads = 0
        self._busiest = 0
        """Maximum number of threads that worked at once since the last count."""
        self._spare = 0
        """Number of threads that are to end."""
        self._count_at = time.monotonic() + idle_seconds

    @property
    def contended(self) -> bool:
        """Return True if a job waits for a thread."""
        return self._queue.qsize() > 0

    def keep(self, count: int) -> int:
        """Add `count` to the bytes that parked jobs hold in memory; return the new total."""
        with self._lock:
            self._kept_bytes += count
            return self._kept_bytes

    def submit(self, job: BulkJob[Any]) -> None:
        """Queue `job` for a thread, which calls `job.execute`; may be called from any thread."""
        with self._lock:
            start = self._idle <= self._queue.qsize() and self._threads < self._limit
            self._threads += start
            number = self._threads
            behind = self._clock - CATCH_UP_BYTES
            job.turn = self._clock if job.turn is None else max(job.turn, behind)
            # Under the lock: an idle thread that is counted on may not end before it sees the job.
            self._queue.put((job.turn, next(self._submitted), job))
        if start:
            name = f"{self._name}-{number}"
            try:
                threading.Thread(target=self._run, name=name, daemon=True).start()
            except RuntimeError:  # the machine has no more; another thread takes the job
                with self._lock:
                    self._threads -= 1

    def close(self) -> None:
        """End the threads once the queue is empty."""
        for _ in range(self._threads):
            self._queue.put((math.inf, next(self._submitted), None))

    def _run(self) -> None:
        if self._work() and not self._spare:
            self._on_fewer()

    def _work(self) -> bool:
        """Run jobs; return True once this thread is not needed, False if the pool is closed."""
        size = self._scratch_bytes
        scratch = Scratch(memoryview(bytearray(size)), bytearray(size))
        while True:
            if self._is_spare():
                return True
            with self._lock:
                self._idle += 1
            try:
                turn, _, job = self._queue.get(timeout=self._idle_seconds)
            except queue.Empty:
                with self._lock:
                    self._idle -= 1
                continue
            with self._lock:
                self._idle -= 1
                self._busiest = max(self._busiest, self._threads - self._idle)
                if job is not None:
                    self._clock = max(self._clock, int(turn))
            if job is None:
                return False
            job.execute(scratch)

    def _is_spare(self) -> bool:
        """Return True if the calling thread is to end; never while a job waits."""
        with self._lock:
            now = time.monotonic()
            if now >= self._count_at:
                self._count_at = now + self._idle_seconds
                self._spare = self._threads - self._busiest
                self._busiest = 0
            if self._spare <= 0 or self._queue.qsize():
                return False
            self._spare -= 1
            self._threads -= 1
            return True


class BulkJob(Generic[T]):
    """A transfer that moves between a bulk thread and the event loop until it ends.

    The job owns `sock`, a duplicate of the connection's socket: the transport may close at any time
    and its descriptor be reused; the duplicate stays valid. The duplicate is closed only on the
    event loop, after the thread no longer uses it. For a TLS connection, `sock` is the connection
    itself, on loan.
    """

    writes = False  # True if the job waits until it can write to the socket

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pool: BulkPool,
        limits: ServerLimits,
        sock: socket.socket | TlsLoan | None,
    ) -> None:
        self.loop = loop
        self.pool = pool
        self.limits = limits
        self.sock = sock
        self.tls = sock.stream if isinstance(sock, TlsLoan) else None
        self.moved = 0  # bytes, to watch the progress
        self.turn: int | None = None  # place in the queue of `pool`, in bytes
        self.waiting = False  # for the client, in a thread or parked
        self.stopped = False
        self.parked = False  # shared with the event loop, which watches the socket
        self._ended: asyncio.Future[T] = loop.create_future()

    async def run(self) -> T:
        """Run the job to its end and return its result.

        Cancelling this stops the job, but `CancelledError` is raised only when no thread uses the
        job any more: otherwise the caller would close files that the thread still uses.
        """
        self.pool.jobs.add(self)
        self.pool.submit(self)
        return await self._result()

    async def run_when_ready(self) -> T:
        """Run the job like `run`, but first wait until the socket is ready."""
        self.pool.jobs.add(self)
        self._park()
        return await self._result()

    async def _result(self) -> T:
        try:
            return await asyncio.shield(self._ended)
        finally:
            self.stop()
            while not self._ended.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait((self._ended,))
            self._ended.exception()  # a caller that was cancelled does not ask for it

    def stop(self) -> None:
        """Make the job end early; call this on the event loop."""
        self.stopped = True
        if self.parked:
            self._unpark()

    def execute(self, scratch: Scratch) -> None:
        """Do the next part of the work in a bulk thread; never raise."""
        before = self.moved
        try:
            step = self.advance(scratch)
            self.turn = (self.turn or 0) + self.moved - before
            if step is BulkStep.DONE:
                self._call_loop(self._succeed, self.conclude())
        except BaseException as error:  # noqa: BLE001 - raised where the job is awaited
            self._call_loop(self._fail, error)
            return
        # Once submitted, the job may already run in another thread: do not use it below.
        if step is BulkStep.PARK:
            self._call_loop(self._park)
        elif step is BulkStep.YIELD:
            self.pool.submit(self)

    def advance(self, scratch: Scratch) -> BulkStep:
        """Move as many bytes as possible without waiting; `scratch` belongs to the thread."""
        raise NotImplementedError

    def conclude(self) -> T:
        """Return the result of the job; called in the bulk thread."""
        raise NotImplementedError

    def wait_briefly(self) -> bool:
        """Wait a few milliseconds for the socket; return False if the job should be parked."""
        assert self.sock is not None
        self.waiting = True
        poller = select.poll()
        poller.register(self.sock, select.POLLOUT if self._waits_to_write else select.POLLIN)
        patience = 0 if self.pool.contended else self.limits.bulk_patience_seconds
        ready = bool(poller.poll(patience * 1000))
        self.waiting = not ready
        return ready

    @property
    def _waits_to_write(self) -> bool:
        """Return True if the job waits until the socket accepts bytes, not for bytes to read."""
        return self.writes if self.tls is None else self.tls.waits_to_write

    def _park(self) -> None:
        if self.stopped:
            self.pool.submit(self)
            return
        assert self.sock is not None
        self.waiting = self.parked = True
        if self._waits_to_write:
            self.loop.add_writer(self.sock, self._unpark)
        else:
            self.loop.add_reader(self.sock, self._unpark)

    def _unpark(self) -> None:
        assert self.sock is not None
        self.waiting = self.parked = False
        if self._waits_to_write:
            self.loop.remove_writer(self.sock)
        else:
            self.loop.remove_reader(self.sock)
        self.pool.submit(self)

    def _call_loop(self, callback: Callable[[Unpack[Ts]], None], *arguments: *Ts) -> None:
        try:
            self.loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop is closed: the process is ending
            self.close()

    def _succeed(self, result: T) -> None:
        self._end()
        self._ended.set_result(result)

    def _fail(self, error: BaseException) -> None:
        self._end()
        self._ended.set_exception(error)

    def _end(self) -> None:
        self.pool.jobs.discard(self)
        self.close()

    def close(self) -> None:
        """Release the job's resources."""
        if self.sock is not None:
            self.sock.close()

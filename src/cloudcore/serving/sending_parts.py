"""Send bodies that are made as they are sent, such as decrypted ones, from the bulk threads."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from cloudcore.serving.bulk import BulkJob, BulkPool, BulkStep, Scratch
from cloudcore.serving.limits import MIB, ServerLimits
from cloudcore.serving.tls_stream import TlsLoan

if TYPE_CHECKING:
    from cloudcore.serving.request_cycle import RequestCycle

Parts = Callable[[int], Iterator[memoryview]]
"""Return the parts of a body from an offset on; each is valid until the next. Blocks."""

SLICE_BYTES: Final = 4 * MIB
"""Bytes that a job sends while others wait for its thread. Few, so that clients who get the same
object are not far from each other: parts that are made for one may serve all."""
KEPT_BYTES: Final = 2 * MIB
"""About what the iterator over the parts of one body keeps in memory."""


class BodyEndedEarlyError(Exception):
    """The parts are fewer bytes than the body."""


class SendPartsJob(BulkJob[bool]):
    """Makes and sends a body in bulk threads; the result is True if all of it was sent.

    A parked job keeps its iterator. But if parked jobs keep more than `ServerLimits.parked_bytes`,
    it drops the iterator, and makes the part again from where the client stopped reading.
    """

    writes = True

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pool: BulkPool,
        limits: ServerLimits,
        sock: socket.socket | TlsLoan,
        *,
        parts: Parts,
        count: int,
    ) -> None:
        """Send the `count` bytes that ``parts(0)`` yields."""
        super().__init__(loop, pool, limits, sock)
        self._parts = parts
        self._count = count
        self._iterator: Iterator[memoryview] | None = None
        self._part = memoryview(b"")
        self._kept = 0

    def advance(self, scratch: Scratch) -> BulkStep:  # noqa: ARG002 - the parts have buffers
        """See `BulkJob.advance`."""
        self.pool.keep(-self._kept)
        self._kept = 0
        step = self._send()
        if step is not BulkStep.DONE:
            self._keep()
        return step

    def conclude(self) -> bool:
        """See `BulkJob.conclude`."""
        return self.moved == self._count

    def close(self) -> None:
        """See `BulkJob.close`."""
        self._iterator, self._part = None, memoryview(b"")
        super().close()

    def _send(self) -> BulkStep:
        assert self.sock is not None
        sock = self.sock.stream if isinstance(self.sock, TlsLoan) else self.sock
        start = self.moved
        while self.moved < self._count and not self.stopped:
            if not self._part:
                self._part = self._next(0)
            if self.tls is not None and len(self._part) < self.tls.owed:
                self._part = self._joined(self.tls.owed)
            try:
                sent = sock.send(self._part)
            except BlockingIOError:
                if not self.wait_briefly():
                    return BulkStep.PARK
                continue
            except (ConnectionError, TimeoutError):
                break  # the client left
            self._part = self._part[sent:]
            self.moved += sent
            if self.moved - start >= SLICE_BYTES and self.pool.contended:
                return BulkStep.YIELD
        return BulkStep.DONE

    def _joined(self, least: int) -> memoryview:
        """Return the current part with so many of the next ones that it has `least` bytes.

        What TLS has begun to send may span two parts, if they were dropped and made again.
        """
        joined = bytearray(self._part)
        while len(joined) < least:
            joined += self._next(len(joined))
        return memoryview(joined)

    def _next(self, held: int) -> memoryview:
        """Return the part behind the first `held` bytes that are not sent."""
        if self._iterator is None:
            self._iterator = self._parts(self.moved + held)
        part = next(self._iterator, None)
        if not part:
            raise BodyEndedEarlyError
        return part[: self._count - self.moved - held]

    def _keep(self) -> None:
        if self.pool.keep(KEPT_BYTES) <= self.limits.parked_bytes:
            self._kept = KEPT_BYTES
            return
        self.pool.keep(-KEPT_BYTES)
        self._iterator, self._part = None, memoryview(b"")


async def send_parts(cycle: RequestCycle, head: bytes, parts: Parts, count: int) -> bool:
    """Send `head`, then `count` bytes of `parts`; return False if the client left.

    The bytes sent of the body are added to `cycle.sent`.

    Raises:
        BodyEndedEarlyError: there are fewer bytes.

    """
    connection = cycle.connection
    connection.write(head)
    if connection.write_paused:
        await connection.drained()
    sock = connection.lend_socket()
    if sock is None:
        return False
    worker = connection.worker
    cycle.send_job = job = SendPartsJob(
        connection.loop, worker.senders, worker.limits, sock, parts=parts, count=count
    )
    try:
        return await job.run()
    finally:
        cycle.send_job = None
        cycle.sent += job.moved

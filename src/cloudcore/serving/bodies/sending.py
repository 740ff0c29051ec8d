"""Send files to clients without copies through Python, and bodies that threads make.

Small pieces are read from the page cache and sent together with the head. Medium ones are sent with
``sendfile`` on the event loop, in short bursts. Large ones, uncached ones and those for slow
clients are sent by the bulk threads. For TLS, the same rules apply, but pieces are read and
encrypted instead of sent by ``sendfile``.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from typing import Final

from cloudcore.serving.bodies.bulk import BulkJob, BulkStep, Scratch
from cloudcore.serving.bodies.connection import BodyConnection, Transfer
from cloudcore.serving.limits import MIB
from cloudcore.serving.tls.stream import TlsLoan
from cloudcore.serving.tls.transport import lend_socket


class FileEndedEarlyError(Exception):
    """The file is shorter than the requested piece."""


class SendingJob(BulkJob[bool]):
    """Sends a body from bulk threads; the result is True if all of it was sent."""

    writes = True

    def __init__(
        self,
        connection: BodyConnection,
        sock: socket.socket | TlsLoan,
        count: int,
        slice_bytes: int,
    ) -> None:
        """Send `count` bytes; after about `slice_bytes`, let waiting jobs use the thread."""
        worker = connection.worker
        super().__init__(connection.loop, worker.senders, worker.limits, sock)
        self._count = count
        self._slice_bytes = slice_bytes

    def advance(self, scratch: Scratch) -> BulkStep:
        """See `BulkJob.advance`."""
        assert self.sock is not None
        start = self.moved
        while self.moved < self._count and not self.stopped:
            self._prepare()
            try:
                sent = self._send(self.sock, scratch.unit)
            except BlockingIOError:
                if not self.wait_briefly():
                    return BulkStep.PARK
                continue
            except (ConnectionError, TimeoutError):
                break  # the client left
            self.moved += sent
            if self.moved - start >= self._slice_bytes and self.pool.contended:
                return BulkStep.YIELD
        return BulkStep.DONE

    def conclude(self) -> bool:
        """See `BulkJob.conclude`."""
        return self.moved == self._count

    def _prepare(self) -> None:
        """Prepare the next bytes; an error raised here does not mean that the client left."""

    def _send(self, sock: socket.socket | TlsLoan, buffer: memoryview) -> int:
        """Send some bytes; return their number. `buffer` belongs to the thread."""
        raise NotImplementedError


class SendJob(SendingJob):
    """Sends a piece of a file."""

    def __init__(
        self,
        connection: BodyConnection,
        sock: socket.socket | TlsLoan,
        file: int,
        offset: int,
        count: int,
    ) -> None:
        """Send `count` bytes from `offset`; the descriptor `file` is duplicated."""
        super().__init__(connection, sock, count, connection.worker.limits.bulk_slice_bytes)
        self._file = os.dup(file)
        self._offset = offset

    def close(self) -> None:
        """See `BulkJob.close`."""
        os.close(self._file)
        super().close()

    def _send(self, sock: socket.socket | TlsLoan, buffer: memoryview) -> int:
        offset, left = self._offset + self.moved, self._count - self.moved
        if isinstance(sock, TlsLoan):
            count = min(left, sock.stream.owed or sock.stream.piece_bytes)
            count = os.preadv(self._file, [buffer[:count]], offset)
            sent = sock.stream.send(buffer[:count]) if count else 0
        else:
            sent = os.sendfile(sock.fileno(), self._file, offset, min(left, self._slice_bytes))
        if not sent:
            raise FileEndedEarlyError
        return sent


def _read_cached(file: int, offset: int, buffer: memoryview) -> bool:
    """Fill `buffer` from the page cache; return False if that would wait for the disk."""
    try:
        return os.preadv(file, [buffer], offset, os.RWF_NOWAIT) == len(buffer)
    except OSError:  # not in the cache, or not supported by the file system
        return False


def _is_cached(file: int, offset: int, count: int) -> bool:
    """Return True if both ends of a piece are in the page cache, and so probably the rest."""
    probe = memoryview(bytearray(1))
    return _read_cached(file, offset, probe) and _read_cached(file, offset + count - 1, probe)


async def send_piece(transfer: Transfer, head: bytes, file: int, offset: int, count: int) -> bool:
    """Send `head`, then `count` bytes of `file` from `offset`; return False if the client left.

    The number of bytes sent from the file is added to `transfer.sent`.

    Raise `FileEndedEarlyError` if the file is shorter than the piece.
    """
    connection = transfer.connection
    limits = connection.worker.limits
    if count <= limits.inline_file_bytes:
        message = bytearray(len(head) + count)
        message[: len(head)] = head
        with memoryview(message) as view, view[len(head) :] as room:
            cached = _read_cached(file, offset, room)
        if cached:
            transfer.sent += count
            connection.write(message)
            return True
    connection.write(head)
    if connection.write_paused:
        await connection.drained()
    if limits.inline_file_bytes < count <= limits.loop_file_bytes:
        if connection.is_tls:
            return await _encrypt_bursts(transfer, file, offset, count)
        return await _send_bursts(transfer, file, offset, count)
    return await _send_in_bulk(transfer, file, offset, count)


async def _send_bursts(transfer: Transfer, file: int, offset: int, count: int) -> bool:
    """Send on the event loop, one burst per turn; use a thread if disk or client would block."""
    connection = transfer.connection
    limits = connection.worker.limits
    while count:
        burst = min(count, limits.burst_bytes)
        if connection.is_closing():
            return False
        if not _is_cached(file, offset, burst):
            return await _send_in_bulk(transfer, file, offset, count)
        try:
            sent = os.sendfile(connection.fileno(), file, offset, burst)
        except BlockingIOError:
            return await _send_in_bulk(transfer, file, offset, count, full=True)
        except (ConnectionError, TimeoutError):
            return False
        if not sent:
            raise FileEndedEarlyError
        transfer.sent += sent
        offset += sent
        count -= sent
        if count:
            await asyncio.sleep(0)
    return True


async def _encrypt_bursts(transfer: Transfer, file: int, offset: int, count: int) -> bool:
    """Send in bursts like `_send_bursts`, over TLS."""
    connection = transfer.connection
    while count:
        burst = bytearray(min(count, connection.worker.limits.burst_bytes))
        if connection.is_closing():
            return False
        with memoryview(burst) as room:
            cached = _read_cached(file, offset, room)
        if not cached:
            return await _send_in_bulk(transfer, file, offset, count)
        connection.write(burst)
        transfer.sent += len(burst)
        offset += len(burst)
        count -= len(burst)
        if connection.write_paused:
            await connection.drained()
            if count and not connection.is_closing():
                return await _send_in_bulk(transfer, file, offset, count)
        elif count:
            await asyncio.sleep(0)
    return not connection.is_closing()


async def _send_in_bulk(
    transfer: Transfer, file: int, offset: int, count: int, *, full: bool = False
) -> bool:
    """Send from bulk threads; `full` means that the socket's buffer is already full."""
    connection = transfer.connection
    sock = lend_socket(connection.transport)
    if sock is None:
        return False
    return await _run(transfer, SendJob(connection, sock, file, offset, count), full=full)


async def _run(transfer: Transfer, job: SendingJob, *, full: bool = False) -> bool:
    transfer.send_job = job
    try:
        return await (job.run_when_ready() if full else job.run())
    finally:
        transfer.send_job = None
        transfer.sent += job.moved


Parts = Callable[[int], Iterator[memoryview]]
"""Yields the parts of a body from an offset on; each is valid until the next one. Blocks."""

SLICE_BYTES: Final = 4 * MIB
"""Bytes that a job sends while others wait for its thread. They are few, so that clients of one
object stay near each other: a part that is made for one of them may then serve all."""
KEPT_BYTES: Final = 2 * MIB
"""Approximate memory that the iterator over the parts of one body uses."""


class BodyEndedEarlyError(Exception):
    """The parts have fewer bytes than the body should have."""


class SendPartsJob(SendingJob):
    """Sends a body that it makes in parts.

    A parked job keeps its iterator of parts. But if parked jobs hold more than
    `ServerLimits.parked_bytes`, it drops the iterator, and later makes the parts again from where
    the client stopped reading.
    """

    def __init__(
        self, connection: BodyConnection, sock: socket.socket | TlsLoan, parts: Parts, count: int
    ) -> None:
        """Send the `count` bytes that ``parts(0)`` yields."""
        super().__init__(connection, sock, count, SLICE_BYTES)
        self._parts = parts
        self._iterator: Iterator[memoryview] | None = None
        self._part = memoryview(b"")
        self._kept = 0

    def advance(self, scratch: Scratch) -> BulkStep:
        """See `BulkJob.advance`."""
        self.pool.keep(-self._kept)
        self._kept = 0
        step = super().advance(scratch)
        if step is not BulkStep.DONE:
            self._keep()
        return step

    def close(self) -> None:
        """See `BulkJob.close`."""
        self._iterator, self._part = None, memoryview(b"")
        super().close()

    def _prepare(self) -> None:
        if not self._part:
            self._part = self._next(0)
        if self.tls is not None and len(self._part) < self.tls.owed:
            self._part = self._joined(self.tls.owed)

    def _send(self, sock: socket.socket | TlsLoan, buffer: memoryview) -> int:  # noqa: ARG002
        sent = (sock.stream if isinstance(sock, TlsLoan) else sock).send(self._part)
        self._part = self._part[sent:]
        return sent

    def _joined(self, least: int) -> memoryview:
        """Join the current part and as many of the next as are needed for `least` bytes.

        A TLS record that was begun may span two parts, if they were dropped and made again.
        """
        joined = bytearray(self._part)
        while len(joined) < least:
            joined += self._next(len(joined))
        return memoryview(joined)

    def _next(self, held: int) -> memoryview:
        """Return the part that follows the first `held` unsent bytes."""
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


async def send_parts(transfer: Transfer, head: bytes, parts: Parts, count: int) -> bool:
    """Send `head`, then `count` bytes of `parts`; return False if the client left.

    The number of body bytes sent is added to `transfer.sent`.

    Raise `BodyEndedEarlyError` if the parts have fewer bytes.
    """
    connection = transfer.connection
    connection.write(head)
    if connection.write_paused:
        await connection.drained()
    sock = lend_socket(connection.transport)
    if sock is None:
        return False
    return await _run(transfer, SendPartsJob(connection, sock, parts, count))

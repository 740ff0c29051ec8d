"""Receive jobs: move a request body from the socket to a sink in whole units."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from termios import FIONREAD
from typing import NamedTuple, TypeVar

from cloudcore.serving.asgi import UNIT_BYTES, Sink
from cloudcore.serving.bodies.bulk import BulkJob, BulkPool, BulkStep, Scratch, queued_bytes
from cloudcore.serving.bodies.framing import (
    BodyFraming,
    ChunkedBody,
    CountedBody,
    FramingError,
    NextChunk,
)
from cloudcore.serving.limits import MIB, ServerLimits
from cloudcore.serving.tls.stream import RECORD_BYTES, TlsLoan, TlsStream


class Received(NamedTuple):
    """The result of one `recv`."""

    total: int
    """All bytes, including the framing between chunks; 0 at the end of the connection."""
    content: int
    """Content bytes at the start of the buffer; the framing has been advanced past them."""
    rest: bytes
    """The bytes after this content, still to be decoded."""


def receive_foreseen(
    sock: socket.socket, body: ChunkedBody, foreseen: NextChunk, room: memoryview, spare: bytearray
) -> Received:
    """Receive the content of several chunks into `room`, in one system call.

    `foreseen` predicts the bytes between chunks. They go to `spare`, a buffer at least as large as
    `room`. What does not match the prediction, or is incomplete, is returned as `rest`.

    Raise `BlockingIOError` if nothing can be received now.
    """
    framing, size = foreseen
    pieces = _pieces(room, memoryview(spare), body.remaining, len(framing), size)
    count = sock.recvmsg_into(pieces)[0]
    content = min(count, len(pieces[0]))
    remaining, left, chunks = body.remaining - content, count - content, 0
    while left >= len(framing) and pieces[2 * chunks + 1] == framing:
        chunks += 1
        taken = min(left - len(framing), len(pieces[2 * chunks]))
        content += taken
        remaining = size - taken
        left -= len(framing) + taken
    rest = b"".join(pieces[2 * chunks + 1 :])[:left] if left else b""
    body.advance(chunks, remaining)
    return Received(count, content, rest)


def _pieces(
    room: memoryview, between: memoryview, remaining: int, framing_bytes: int, size: int
) -> list[memoryview]:
    """Return buffers for one `recv`, in turn for content and for the framing between chunks."""
    at = min(remaining, len(room))
    pieces = [room[:at]]
    start = 0
    while at < len(room):
        pieces.append(between[start : start + framing_bytes])
        pieces.append(room[at : at + size])
        start += framing_bytes
        at += size
    return pieces


T = TypeVar("T")

SLICE_BYTES = 8 * MIB
"""Maximum bytes that a job receives while other jobs wait for its thread."""


class UnitBuffer:
    """Collects content in a thread's buffer and passes it to the sink in whole units."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._view = memoryview(b"")
        self._saved = b""
        self.filled = 0
        self.total = 0

    def attach(self, buffer: memoryview) -> None:
        """Continue in `buffer`, which belongs to the current thread."""
        self._view = buffer
        buffer[: self.filled] = self._saved
        self._saved = b""

    def detach(self) -> None:
        """Release the buffer; save a copy of its content."""
        self._saved = bytes(self._view[: self.filled])
        self._view = memoryview(b"")

    @property
    def missing(self) -> int:
        """Return the number of bytes until the unit is full."""
        return UNIT_BYTES - self.filled

    def room(self) -> memoryview:
        """Return the unused part of the buffer."""
        return self._view[self.filled :]

    def advance(self, count: int) -> None:
        """Count `count` bytes that were written to `room`; flush the unit if it is full."""
        self.filled += count
        self.total += count
        if self.filled == UNIT_BYTES:
            self.flush()

    def append(self, data: memoryview) -> None:
        """Copy content into the unit, and flush each full one."""
        while data:
            part = data[: self.missing]
            size = len(part)
            self._view[self.filled : self.filled + size] = part
            self.advance(size)
            data = data[size:]

    def flush(self) -> None:
        """Pass the content of the unit to the sink."""
        filled, self.filled = self.filled, 0
        if filled:
            self._sink(self._view[:filled])


class ReceiveJob(BulkJob[T]):
    """Moves one request body to a sink, then calls `finish`, in bulk threads."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pool: BulkPool,
        limits: ServerLimits,
        sock: socket.socket | TlsLoan | None,
        *,
        framing: BodyFraming,
        buffered: tuple[bytes, bytes],
        sink: Sink,
        finish: Callable[[bool], T],
    ) -> None:
        """Take over a body; `buffered` has the content decoded so far and the raw bytes after."""
        super().__init__(loop, pool, limits, sock)
        self.framing = framing
        self.surplus = b""  # bytes after the end of the body
        self.broken: FramingError | None = None
        self._decoded, self._raw = buffered
        self._finish = finish
        self._unit = UnitBuffer(sink)
        self._threshold = 1  # current SO_RCVLOWAT

    @property
    def unread_bytes(self) -> int:
        """Return the number of bytes in the socket while the job waits for more; otherwise 0."""
        return queued_bytes(self.sock, FIONREAD) if self.waiting and self.sock else 0

    @property
    def content_bytes(self) -> int:
        """Return the number of content bytes received, including those of an unfinished unit."""
        return self._unit.total

    def advance(self, scratch: Scratch) -> BulkStep:
        """Receive until the socket would block; see `BulkJob.advance`."""
        kept_bytes = self.pool.keep(-self._unit.filled)
        self._unit.attach(scratch.unit)
        try:
            step = self._receive(scratch.raw)
        except FramingError as error:
            self.broken = error
            step = BulkStep.DONE
        if step is BulkStep.DONE or kept_bytes > self.limits.parked_bytes:
            self._unit.flush()
        self._unit.detach()
        self.pool.keep(self._unit.filled)
        return step

    def conclude(self) -> T:
        """Call `finish` and return its result; see `BulkJob.conclude`."""
        return self._finish(self.framing.complete)

    def close(self) -> None:
        """See `BulkJob.close`."""
        if self.sock is not None and self._threshold != 1:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        super().close()

    @property
    def _socket(self) -> socket.socket | TlsStream:
        """Return the stream to read from: the socket, or the TLS stream over it."""
        assert self.sock is not None
        return self.sock.stream if isinstance(self.sock, TlsLoan) else self.sock

    def _receive(self, raw: bytearray) -> BulkStep:
        """Receive until the body ends, the client must send more, or another job needs the thread.

        A job that was stopped only takes what is in the socket, up to about `SLICE_BYTES`.
        """
        self._decode_buffered()
        start = self.moved
        while self.sock is not None and not self.framing.complete:
            try:
                count = self._read(self._socket, raw)
            except BlockingIOError:
                if self.stopped:
                    break
                self._ask_for(self._unit.missing)
                if not self.wait_briefly():
                    return BulkStep.PARK
                continue
            except OSError:
                break  # the client left
            if not count:
                break
            self.moved += count
            if self.moved - start > SLICE_BYTES:
                if self.stopped:
                    break
                if self.pool.contended:
                    return BulkStep.YIELD
        return BulkStep.DONE

    def _decode_buffered(self) -> None:
        """Process the bytes that arrived before the job began."""
        decoded, raw = self._decoded, self._raw
        self._decoded = self._raw = b""
        self._unit.append(memoryview(decoded))
        self._decode(raw, len(raw))

    def _decode(self, data: bytes | bytearray, end: int) -> None:
        if end:
            used = self.framing.feed(data, end, self._unit.append)
            self.surplus = bytes(data[used:end])

    def _read(self, sock: socket.socket | TlsStream, raw: bytearray) -> int:
        if isinstance(self.framing, CountedBody):
            room = self._unit.room()
            count = sock.recv_into(room, min(len(room), self.framing.remaining))
            self.framing.advance(count)
            self._unit.advance(count)
            return count
        if (
            isinstance(sock, socket.socket)
            and isinstance(self.framing, ChunkedBody)
            and (foreseen := self.framing.foreseen)
        ):
            room = self._unit.room()
            received = receive_foreseen(sock, self.framing, foreseen, room, raw)
            self._unit.advance(received.content)
            self._decode(received.rest, len(received.rest))
            return received.total
        count = sock.recv_into(raw)
        self._decode(raw, count)
        return count

    def _ask_for(self, threshold: int) -> None:
        """Make the socket readable only when it has `threshold` bytes, or has ended.

        Only for a body with a Content-Length: the end of a chunked body may be shorter than the
        threshold, and would never wake the job.
        """
        if isinstance(self.framing, CountedBody):
            threshold = min(threshold, self.framing.remaining)
            if self.tls is not None:  # up to a record may be within, still encrypted
                threshold -= 2 * RECORD_BYTES
            threshold = max(1, threshold)
            if threshold != self._threshold:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, threshold)
                self._threshold = threshold

"""Receive jobs: a request body goes from the socket to a sink in whole units."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from termios import FIONREAD
from typing import TypeVar

from cloudcore.serving.body import UNIT_BYTES, Sink
from cloudcore.serving.bulk import BulkJob, BulkPool, BulkStep, Scratch, queued_bytes
from cloudcore.serving.framing import BodyFraming, CountedBody, FramingError
from cloudcore.serving.limits import MIB, ServerLimits

T = TypeVar("T")

SLICE_BYTES = 8 * MIB
"""How much a job may receive while others wait for its thread."""


class Unit:
    """Collects content in a thread's buffer and hands it to the sink in whole units."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._view = memoryview(b"")
        self._saved = b""
        self.filled = 0
        self.total = 0

    def attach(self, buffer: memoryview) -> None:
        """Go on in `buffer`, which belongs to the current thread."""
        self._view = buffer
        buffer[: self.filled] = self._saved
        self._saved = b""

    def detach(self) -> None:
        """Let go of the buffer; what it holds is kept aside."""
        self._saved = bytes(self._view[: self.filled])
        self._view = memoryview(b"")

    @property
    def missing(self) -> int:
        """Return how many bytes would make the unit whole."""
        return UNIT_BYTES - self.filled

    def room(self) -> memoryview:
        """Return the free part, to be received into."""
        return self._view[self.filled :]

    def advance(self, count: int) -> None:
        """Count `count` bytes that were put into `room`."""
        self.filled += count
        self.total += count
        if self.filled == UNIT_BYTES:
            self.flush()

    def append(self, data: memoryview) -> None:
        """Add content that lies elsewhere."""
        while data:
            part = data[: self.missing]
            size = len(part)
            self._view[self.filled : self.filled + size] = part
            self.advance(size)
            data = data[size:]

    def flush(self) -> None:
        """Hand over what is there."""
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
        sock: socket.socket | None,
        *,
        framing: BodyFraming,
        buffered: tuple[bytes, bytes],
        sink: Sink,
        finish: Callable[[bool], T],
    ) -> None:
        """Take the body over; `buffered` is content that was decoded, and raw bytes."""
        super().__init__(loop, pool, limits, sock)
        self.framing = framing
        self.surplus = b""  # what came after the end of the body
        self.broken: FramingError | None = None
        self._decoded, self._raw = buffered
        self._finish = finish
        self._unit = Unit(sink)
        self._threshold = 1  # SO_RCVLOWAT as it stands

    @property
    def unread_bytes(self) -> int:
        """Return how many bytes of the body wait in the socket, too few to wake the job."""
        return queued_bytes(self.sock, FIONREAD) if self.waiting and self.sock else 0

    @property
    def content_bytes(self) -> int:
        """Return how much content went to the sink or waits for its unit to fill."""
        return self._unit.total

    def advance(self, scratch: Scratch) -> BulkStep:
        """See `BulkJob.advance`."""
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
        """See `BulkJob.conclude`."""
        return self._finish(self.framing.complete)

    def close(self) -> None:
        """See `BulkJob.close`."""
        if self.sock is not None and self._threshold != 1:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        super().close()

    def _receive(self, raw: bytearray) -> BulkStep:
        """Receive what arrives; after the job was stopped, only what is already there."""
        self._decode_buffered()
        start = self.moved
        while self.sock is not None and not self.framing.complete:
            try:
                count = self._read(self.sock, raw)
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
        """Begin with what came together with the head."""
        decoded, raw = self._decoded, self._raw
        self._decoded = self._raw = b""
        self._unit.append(memoryview(decoded))
        self._decode(raw, len(raw))

    def _decode(self, data: bytes | bytearray, end: int) -> None:
        if end:
            used = self.framing.feed(data, end, self._unit.append)
            self.surplus = bytes(data[used:end])

    def _read(self, sock: socket.socket, raw: bytearray) -> int:
        if isinstance(self.framing, CountedBody):
            room = self._unit.room()
            count = sock.recv_into(room, min(len(room), self.framing.remaining))
            self.framing.advance(count)
            self._unit.advance(count)
            return count
        count = sock.recv_into(raw)
        self._decode(raw, count)
        return count

    def _ask_for(self, threshold: int) -> None:
        """Have the socket report itself readable only at `threshold` bytes (or at its end).

        Only where the rest is counted: the end of a chunked body may be shorter than any
        threshold, and nothing would ever wake its reader.
        """
        if isinstance(self.framing, CountedBody):
            threshold = max(1, min(threshold, self.framing.remaining))
            if self.sock is not None and threshold != self._threshold:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, threshold)
                self._threshold = threshold

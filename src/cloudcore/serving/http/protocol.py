"""The HTTP/1.1 protocol of a connection, used in place of uvicorn's."""

from __future__ import annotations

import asyncio
import enum
import time
from http import HTTPStatus
from termios import TIOCOUTQ
from typing import Any, cast
from uuid import uuid4

from uvicorn.config import Config
from uvicorn.server import ServerState

from cloudcore.serving.bodies.bulk import queued_bytes
from cloudcore.serving.bodies.framing import FramingError
from cloudcore.serving.bodies.request_body import CONTINUE, SocketBody
from cloudcore.serving.dispatch import Application
from cloudcore.serving.http.head import (
    HeadError,
    HeadReader,
    RequestHead,
    check_partial,
    without_empty_lines,
)
from cloudcore.serving.http.replay import give_kept, keep_answer, record_of
from cloudcore.serving.http.request_cycle import RequestCycle
from cloudcore.serving.http.response import (
    guess_host,
    guess_method,
    guess_path,
    refusal_response,
    tls_refusal,
)
from cloudcore.serving.http.worker import ServerWorker
from cloudcore.serving.request_record import PLAIN_HTTP, TLS_HELLO, RequestRecord
from cloudcore.serving.tls.transport import TlsProtocol, TlsTransport

TLS_HANDSHAKE = 0x16
NEVER = float("inf")
PIPELINE_BYTES = 64 * 1024
"""Maximum bytes buffered after the current request."""


class ConnectionState(enum.IntEnum):
    """The state of a connection, which decides how the next bytes are read."""

    HEAD = 0  # the head of a request, or nothing yet
    BUSY = 1  # body of the current request, or requests behind it
    DRAINING = 2  # body of a request that was answered without it
    LINGERING = 3  # ignored: the last response is sent, the client may still be sending


class HttpProtocol(TlsProtocol):
    """One connection: answers its requests one after the other."""

    __slots__ = (
        "_buffer", "_deadline", "_drain_waiter", "_draining", "_reading", "_state", "_unsent",
        "app_state", "application", "client", "closing", "cycle", "discarded", "is_tls", "loop",
        "peer_closed", "reader", "server", "server_state", "tasks", "transport", "worker",
        "write_paused",
    )  # fmt: skip

    def __init__(
        self,
        worker: ServerWorker,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.worker = worker
        self.server_state = server_state
        self.app_state = app_state
        self.tasks: set[Any] = server_state.tasks
        self.loop = _loop or asyncio.get_running_loop()
        self.application = cast("Application", config.loaded_app)
        self.transport: asyncio.Transport
        self.server: tuple[str, int] | None = None
        self.client: tuple[str, int] | None = None
        self.cycle: RequestCycle | None = None
        self.closing = False
        self.is_tls = False
        self.peer_closed = False
        self.write_paused = False
        self._state = ConnectionState.HEAD
        self.reader = HeadReader(worker.limits)
        self._reading = True
        self._buffer = b""
        self._deadline = NEVER
        self.discarded = 0  # bytes dropped since the last answer
        self._draining: SocketBody | None = None
        self._drain_waiter: asyncio.Future[None] | None = None
        self._unsent = 0  # bytes buffered in the transport, or dropped by an abort

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the connection, which is closed if nothing arrives in `head_seconds`."""
        self.transport = cast("asyncio.Transport", transport)
        self.is_tls = isinstance(transport, TlsTransport)
        # Any bytes that the kernel does not take at once pause the writer. So "not paused"
        # means that nothing is buffered, and files may be sent past the transport.
        self.transport.set_write_buffer_limits(high=0)
        self.server = _address(transport.get_extra_info("sockname"))
        self.client = _address(transport.get_extra_info("peername"))
        connections = cast("set[HttpProtocol]", self.server_state.connections)
        connections.add(self)
        self.worker.watch(self.loop, connections)
        self._deadline = time.monotonic() + self.worker.limits.head_seconds

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """End the current request; the application receives a disconnect."""
        cast("set[HttpProtocol]", self.server_state.connections).discard(self)
        self._deadline = NEVER
        unsent = self._unsent
        self.resume_writing()
        cycle, self.cycle = self.cycle, None
        if cycle is None:
            return
        cycle.unsent = unsent
        cycle.lose()
        if cycle.task is None or cycle.task.done():
            self.record(cycle)
        else:  # bulk threads may still add to its counters
            cycle.recorded_later = True

    def data_received(self, data: bytes) -> None:
        """Process bytes from the client according to the connection's state."""
        state = self._state
        if state is ConnectionState.HEAD:
            buffered = self._buffer
            if not buffered:
                kept = self.worker.kept
                if kept is not None and give_kept(self, kept, data):
                    return
                self._deadline = time.monotonic() + self.worker.limits.head_seconds
            self._buffer = buffered + data if buffered else data
            self._read_head()
        elif state is ConnectionState.BUSY:
            self._take_ahead(data)
        elif state is ConnectionState.DRAINING:
            self._drain(data)
        else:
            self.discarded += len(data)
            if self.discarded >= self.worker.limits.linger_bytes:
                self.pause_reading()  # until the deadline, so that the client sees the answer

    def eof_received(self) -> bool:
        """Record that the client sends no more; return True to keep our side open to answer."""
        self.peer_closed = True
        if self.cycle is None:
            return False
        self.cycle.peer_closed()
        return True

    def pause_writing(self) -> None:
        """Record that the client does not read fast enough."""
        self.write_paused = True

    def resume_writing(self) -> None:
        """Record that everything written has been sent."""
        self.write_paused = False
        self._unsent = 0
        waiter, self._drain_waiter = self._drain_waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # What uvicorn and the worker call

    def shutdown(self) -> None:
        """Close as soon as the current request has ended; called when the server stops."""
        self.closing = True
        if self.cycle is None and self._state is ConnectionState.HEAD:
            self._close()

    def sweep(self, now: float) -> None:
        """Enforce the time limits."""
        if self.cycle is not None:
            self.cycle.sweep(now, self.worker.limits, crowded=self.worker.crowded)
        elif now > self._deadline:
            self._expire()

    # What request cycles and bodies call

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write to the client; do nothing if it has disconnected."""
        if data and not self.transport.is_closing():
            self.transport.write(data)
            if self.write_paused:
                self._unsent = self.transport.get_write_buffer_size()

    def waiting_bytes(self) -> int:
        """Return the number of written bytes that are not acknowledged, ours and the kernel's."""
        if self.transport.is_closing():
            return 0
        queued = queued_bytes(self.transport.get_extra_info("socket"), TIOCOUTQ)
        return self.transport.get_write_buffer_size() + queued

    async def drained(self, kept: int = 0) -> None:
        """Wait until everything written has been sent, or the client has disconnected.

        During the wait, the memory in use is counted: the unsent bytes, or `kept` if that is more.
        """
        unsent = self.worker.unsent
        unsent.keep(self, max(kept, self.transport.get_write_buffer_size()))
        try:
            while self.write_paused:
                if self._drain_waiter is None:
                    self._drain_waiter = self.loop.create_future()
                await asyncio.shield(self._drain_waiter)
        finally:
            unsent.release(self)

    def is_closing(self) -> bool:
        """Return True if the connection is closed or closing."""
        return self.transport.is_closing()

    def fileno(self) -> int:
        """Return the socket's descriptor; only valid while not `is_closing`."""
        number: int = self.transport.get_extra_info("socket").fileno()
        return number

    def pause_reading(self) -> None:
        """Stop reading; leave the client's bytes in the socket."""
        if self._reading and not self.transport.is_closing():
            self._reading = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading from the client."""
        if not self._reading and not self.transport.is_closing():
            self._reading = True
            self.transport.resume_reading()

    def body_ended(self, surplus: bytes) -> None:
        """Store the bytes after a complete body (`surplus`), and resume reading."""
        self._buffer = surplus
        self.resume_reading()

    def common_lines(self) -> bytes:
        """Return the header lines that every response has."""
        return self.worker.common_lines(self.server_state.default_headers)

    @property
    def port(self) -> int | None:
        """Return the local port to which the client connected, or None if it is not TCP."""
        return None if self.server is None else self.server[1]

    def abort(self, reason: str = "") -> None:
        """Close at once and drop unsent bytes; `reason` is logged."""
        if self.transport.is_closing():
            return
        if self.cycle is not None:
            self.cycle.reason = reason or self.cycle.reason
            self._unsent = self.waiting_bytes()
        self.transport.abort()

    def refuse(self, status: int, message: str) -> None:
        """Send an error response instead of the application's, and close."""
        cycle = self.cycle
        if cycle is None:
            method, path = guess_method(self._buffer), guess_path(self._buffer)
            request_id, headers = str(uuid4()), guess_host(self._buffer)
        else:
            method, path = cycle.head.method, cycle.head.path
            request_id, headers = cycle.request_id or str(uuid4()), cycle.head.headers
        planes = self.worker.planes
        plane = planes.find(path, headers, self.port)
        answer, size = refusal_response(
            status,
            message,
            planes.planes[plane],
            request_id=request_id,
            common=self.common_lines(),
            bodiless=method == "HEAD",
        )
        self.write(answer)
        if cycle is not None:
            cycle.status, cycle.sent, cycle.finished = status, size, True
            cycle.keep_alive, cycle.reason = False, message
            self.cycle_ended(cycle)
        else:
            self._refused(plane, request_id, method, path, status, size, message)

    def _refuse_tls(self) -> None:
        """Answer a TLS hello on a plain HTTP port, and close."""
        answer, size = tls_refusal(self.common_lines())
        self.write(answer)
        plane, request_id = self.worker.planes.find(b"", (), self.port), str(uuid4())
        self._refused(plane, request_id, "", b"", HTTPStatus.BAD_REQUEST, size, TLS_HELLO)

    def refuse_plain(self, data: bytes) -> None:
        """Refuse plain HTTP on a TLS port, and close; `data` are the first bytes received."""
        self._buffer = data
        self.refuse(HTTPStatus.BAD_REQUEST, PLAIN_HTTP)

    def _refused(
        self,
        plane: int,
        request_id: str,
        method: str,
        path: bytes,
        status: int,
        size: int,
        reason: str,
    ) -> None:
        """Record a refusal that has no request cycle, and close."""
        record = RequestRecord(
            *(time.time(), 0.0, request_id, method, path, b"", status, 0, size),
            *(self._host(), plane),
            reason=reason,
        )
        self._observe(record)
        self.linger()

    def record(self, cycle: RequestCycle) -> RequestRecord:
        """Pass the record of an ended request to the observers, and return it."""
        record = record_of(cycle, self._host(), self.worker.planes)
        self._observe(record)
        return record

    def _observe(self, record: RequestRecord) -> None:
        for observe in self.worker.observers:
            observe(record)

    def _host(self) -> str:
        return self.client[0] if self.client else ""

    def cycle_ended(self, cycle: RequestCycle) -> None:
        """Continue with the next request, or close."""
        self.cycle = None
        record = self.record(cycle)
        if cycle.rendered is not None:
            keep_answer(cycle, record)
        body = cycle.body
        unread = body is not None and not body.framing.complete
        done = self.closing or (self.peer_closed and not self._buffer)
        if not cycle.keep_alive or done:
            self.linger() if unread or self._buffer else self._close()
            return
        if body is not None and unread:
            self._start_draining(body)
        else:
            self._expect_head()

    # The states of a connection

    def _expect_head(self) -> None:
        self._state = ConnectionState.HEAD
        limits = self.worker.limits
        self.resume_reading()
        if self._buffer:
            self._deadline = time.monotonic() + limits.head_seconds
            self._read_head()
        else:
            self._deadline = time.monotonic() + limits.keep_alive_seconds

    def _read_head(self) -> None:
        """Start a request cycle if the buffer has a complete head."""
        if self._buffer[0] <= TLS_HANDSHAKE:
            if self._buffer[0] == TLS_HANDSHAKE:
                self._refuse_tls()
                return
            self._buffer = without_empty_lines(self._buffer)
        try:
            request = self._parse_head()
        except HeadError as error:
            self.refuse(error.status, error.message)
            return
        if request is not None:
            self._start(request)
        elif self.peer_closed:
            self._close()

    def _parse_head(self) -> RequestHead | None:
        """Take a request head from the buffer; return None if it is incomplete."""
        data = self._buffer
        end = data.find(b"\r\n\r\n") + 4
        if (len(data) if end < 4 else end) > self.worker.limits.head_bytes:
            raise HeadError(431, "the request head is too large")
        if end < 4:
            check_partial(data)
            return None
        request = self.reader.read(data[:end])  # without a copy if that is all
        self._buffer = data[end:]
        return request

    def _start(self, head: RequestHead) -> None:
        raw = b""
        traits = head.traits
        if traits.has_body:
            raw, self._buffer = self._buffer, b""
            if traits.chunked or (traits.content_length or 0) > len(raw):
                self.pause_reading()
        elif traits.expects_continue:
            # There is nothing to wait with, but clients that asked read it before the response;
            # botocore takes the next response on the connection for the headers of this one.
            self.write(CONTINUE)
        self.run(RequestCycle(self, head, raw), self.application)

    def run(self, cycle: RequestCycle, application: Application) -> None:
        """Start a task in which `application` answers the request of `cycle`."""
        self._state = ConnectionState.BUSY
        self.cycle = cycle
        task = cycle.task = self.loop.create_task(cycle.run(application))
        self.tasks.add(task)

    def answered(self, record: RequestRecord, now: float) -> None:
        """Pass on the record of a request that was answered at `now` without a cycle.

        Then expect the next request.
        """
        worker = self.worker
        self._deadline = now + worker.limits.keep_alive_seconds
        for observe in worker.observers:
            observe(record)

    def _take_ahead(self, data: bytes) -> None:
        cycle = self.cycle
        body = None if cycle is None else cycle.body
        if body is not None and not body.framing.complete:
            body.feed(data)
            return
        self._buffer += data
        if len(self._buffer) > PIPELINE_BYTES:
            self.pause_reading()

    def _start_draining(self, body: SocketBody) -> None:
        self._state = ConnectionState.DRAINING
        self.discarded = 0
        self._draining = body
        self._deadline = time.monotonic() + self.worker.limits.refusal_drain_seconds
        self.resume_reading()
        self._drain(body.take_raw())

    def _drain(self, data: bytes) -> None:
        body = self._draining
        assert body is not None
        self.discarded += len(data)
        try:
            used = body.framing.feed(data, len(data), _discard)
        except FramingError:
            self.linger()
            return
        if body.framing.complete:
            self._draining = None
            self._buffer = data[used:]
            if self.closing:
                self._close()
            else:
                self._expect_head()

    def linger(self) -> None:
        """Shut down our side and wait briefly for the client, which may still be sending.

        Closing with unread bytes would reset the connection, and the reset can destroy the
        response before the client reads it (RFC 9112 §9.6).
        """
        self._state = ConnectionState.LINGERING
        self._buffer = b""
        self.discarded = 0
        if self.peer_closed or self.transport.is_closing():
            self._close()
            return
        self._deadline = time.monotonic() + self.worker.limits.linger_seconds
        try:
            self.transport.write_eof()
        except OSError:  # the client has reset the connection
            self.abort()
        self.resume_reading()

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def _expire(self) -> None:
        if self._state is ConnectionState.LINGERING:
            self.abort()
        elif self._state is ConnectionState.DRAINING:
            self.linger()
        elif self._buffer:
            self.refuse(408, "the request head came too slowly")
        else:
            self._close()


def _address(name: object) -> tuple[str, int] | None:
    """Return (host, port) of a socket name, or None if it is not TCP."""
    if isinstance(name, tuple) and len(name) >= 2:
        return str(name[0]), int(name[1])
    return None


def _discard(part: memoryview) -> None:
    """Ignore content; an output for draining bodies."""

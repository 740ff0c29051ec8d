"""The HTTP/1 protocol the server speaks on each connection, in uvicorn's place."""

from __future__ import annotations

import asyncio
import enum
import functools
import os
import socket
import time
from http import HTTPStatus
from termios import TIOCOUTQ
from typing import Any, cast
from uuid import uuid4

from uvicorn.config import Config
from uvicorn.server import ServerState

from cloudcore.serving.bulk import queued_bytes
from cloudcore.serving.framing import FramingError
from cloudcore.serving.head import METHODS, HeadError, HeadReader, RequestHead, check_partial
from cloudcore.serving.record import TLS_HELLO, RequestRecord, record_of
from cloudcore.serving.refusal import guess_path, refusal_response, tls_refusal
from cloudcore.serving.request_body import RequestBody
from cloudcore.serving.request_cycle import Application, RequestCycle
from cloudcore.serving.worker import ServerWorker

TLS_HANDSHAKE = 0x16
NEVER = float("inf")
PIPELINE_BYTES = 64 * 1024
"""How much may be buffered behind the request that is being answered."""


class ConnectionState(enum.IntEnum):
    """What the next bytes from the client are."""

    HEAD = 0  # the head of a request, or nothing yet
    BUSY = 1  # body of the current request, or requests behind it
    DRAINING = 2  # body of a request that was answered without it
    LINGERING = 3  # of no interest: the last answer is out, the client may still be sending


class HttpProtocol(asyncio.Protocol):
    """One connection: requests in, one after the other, answers out in the same order."""

    __slots__ = (
        "_application", "_buffer", "_deadline", "_drain_waiter", "_draining", "_reader",
        "_reading", "_state", "_unsent", "app_state", "client", "closing", "discarded",
        "exchange", "loop", "peer_closed", "server", "server_state", "tasks", "transport",
        "worker", "write_paused",
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
        self._application = cast("Application", config.loaded_app)
        self.transport: asyncio.Transport
        self.server: tuple[str, int] | None = None
        self.client: tuple[str, int] | None = None
        self.exchange: RequestCycle | None = None
        self.closing = False
        self.peer_closed = False
        self.write_paused = False
        self._state = ConnectionState.HEAD
        self._reader = HeadReader(worker.limits)
        self._reading = True
        self._buffer = b""
        self._deadline = NEVER
        self.discarded = 0  # bytes dropped after an answer
        self._draining: RequestBody | None = None
        self._drain_waiter: asyncio.Future[None] | None = None
        self._unsent = 0  # bytes that the transport keeps, or that an abort cut off

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: a client that says nothing is closed after `head_seconds`."""
        self.transport = cast("asyncio.Transport", transport)
        # Whatever the kernel does not take at once pauses the writer; so "not paused" means
        # that nothing is buffered, and files may be sent past the transport.
        self.transport.set_write_buffer_limits(high=0)
        self.server = _address(transport.get_extra_info("sockname"))
        self.client = _address(transport.get_extra_info("peername"))
        connections = cast("set[HttpProtocol]", self.server_state.connections)
        connections.add(self)
        self.worker.watch(self.loop, connections)
        self._deadline = time.monotonic() + self.worker.limits.head_seconds

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """End: the application learns that its client left."""
        cast("set[HttpProtocol]", self.server_state.connections).discard(self)
        self._deadline = NEVER
        unsent = self._unsent
        self.resume_writing()
        exchange, self.exchange = self.exchange, None
        if exchange is None:
            return
        exchange.unsent = unsent
        exchange.lose()
        if exchange.task is None or exchange.task.done():
            self.record(exchange)
        else:  # bulk threads may still add to its counters
            exchange.recorded_later = True

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client for whatever is due next."""
        state = self._state
        if state is ConnectionState.HEAD:
            buffered = self._buffer
            if not buffered:
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
        """Take the end of what the client sends; True keeps the way to it open."""
        self.peer_closed = True
        if self.exchange is None:
            return False
        self.exchange.peer_closed()
        return True

    def pause_writing(self) -> None:
        """Note that the client does not read fast enough."""
        self.write_paused = True

    def resume_writing(self) -> None:
        """Note that everything written has left."""
        self.write_paused = False
        self._unsent = 0
        waiter, self._drain_waiter = self._drain_waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # What uvicorn and the worker call

    def shutdown(self) -> None:
        """Close as soon as the current exchange has ended (called by uvicorn)."""
        self.closing = True
        if self.exchange is None and self._state is ConnectionState.HEAD:
            self._close()

    def sweep(self, now: float) -> None:
        """Enforce the time limits."""
        if self.exchange is not None:
            self.exchange.sweep(now, self.worker.limits, crowded=self.worker.crowded)
        elif now > self._deadline:
            self._expire()

    # What exchanges and bodies call

    def write(self, data: bytes | bytearray) -> None:
        """Write to the client, or nowhere when it has left."""
        if data and not self.transport.is_closing():
            self.transport.write(data)
            if self.write_paused:
                self._unsent = self.transport.get_write_buffer_size()

    def waiting_bytes(self) -> int:
        """Return how many written bytes the client has not acknowledged: here or in the kernel."""
        if self.transport.is_closing():
            return 0
        queued = queued_bytes(self.transport.get_extra_info("socket"), TIOCOUTQ)
        return self.transport.get_write_buffer_size() + queued

    async def drained(self, kept: int = 0) -> None:
        """Wait until everything written has left, or the client has.

        Meanwhile the memory of it is kept: `kept` bytes where that is more than what is unsent.
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
        """Tell whether the connection is closed or about to be."""
        return self.transport.is_closing()

    def fileno(self) -> int:
        """Return the socket's descriptor; only valid while not `is_closing`."""
        number: int = self.transport.get_extra_info("socket").fileno()
        return number

    def duplicate_socket(self) -> socket.socket | None:
        """Return a socket of its own for a bulk job, or None when the client has left."""
        if self.transport.is_closing():
            return None
        ours = self.transport.get_extra_info("socket")
        return socket.socket(
            ours.family, socket.SOCK_STREAM, ours.proto, fileno=os.dup(ours.fileno())
        )

    def pause_reading(self) -> None:
        """Leave what the client sends in its socket."""
        if self._reading and not self.transport.is_closing():
            self._reading = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Take again what the client sends."""
        if not self._reading and not self.transport.is_closing():
            self._reading = True
            self.transport.resume_reading()

    def body_ended(self, surplus: bytes) -> None:
        """Note that the current body is whole; `surplus` came behind it."""
        self._buffer = surplus
        self.resume_reading()

    def common_lines(self) -> bytes:
        """Return the header lines that every response carries."""
        return self.worker.common_lines(self.server_state.default_headers)

    def abort(self, reason: str = "") -> None:
        """Close at once and drop what is unsent; `reason` is for the log."""
        if self.transport.is_closing():
            return
        if self.exchange is not None:
            self.exchange.reason = reason or self.exchange.reason
            self._unsent = self.waiting_bytes()
        self.transport.abort()

    def refuse(self, status: int, message: str) -> None:
        """Answer in the application's place, and close."""
        exchange = self.exchange
        if exchange is None:
            method, path = self._buffer[:5].partition(b" ")[0], guess_path(self._buffer)
            request_id = str(uuid4())
            headers: list[tuple[bytes, bytes]] = []
        else:
            method, path = exchange.head.method.encode(), exchange.head.path
            request_id, headers = exchange.request_id or str(uuid4()), exchange.head.headers
        planes = self.worker.planes
        plane = planes.find(path, headers)
        answer, size = refusal_response(
            status,
            message,
            planes.planes[plane],
            request_id=request_id,
            common=self.common_lines(),
            bodiless=method == b"HEAD",
        )
        self.write(answer)
        if exchange is not None:
            exchange.status, exchange.sent, exchange.finished = status, size, True
            exchange.keep_alive, exchange.reason = False, message
            self.exchange_ended(exchange)
        else:
            self._record_refusal(request_id, METHODS.get(method, ""), path, status, size, message)
            self._linger()

    def _refuse_tls(self) -> None:
        """Tell a client that tries TLS to go on without."""
        answer, size = tls_refusal(self.common_lines())
        self.write(answer)
        self._record_refusal(str(uuid4()), "", b"", HTTPStatus.BAD_REQUEST, size, TLS_HELLO)
        self._linger()

    def record(self, exchange: RequestCycle) -> None:
        """Tell the observers of an exchange that has ended."""
        client = self.client[0] if self.client else ""
        record = record_of(exchange, client, self.worker.planes)
        for observe in self.worker.observers:
            observe(record)

    def exchange_ended(self, exchange: RequestCycle) -> None:
        """Go on to the next request, or close."""
        self.exchange = None
        self.server_state.total_requests += 1
        self.record(exchange)
        body = exchange.body
        unread = body is not None and not body.framing.complete
        done = self.closing or (self.peer_closed and not self._buffer)
        if not exchange.keep_alive or done:
            self._linger() if unread or self._buffer else self._close()
            return
        if unread:
            self._start_draining(body)
        else:
            self._expect_head()

    # The stations of a connection

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
        """Start an exchange if the buffer holds a whole head."""
        if self._buffer[0] <= TLS_HANDSHAKE:
            if self._buffer[0] == TLS_HANDSHAKE:
                self._refuse_tls()
                return
            self._buffer = _without_empty_lines(self._buffer)
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
        """Take a request head off the buffer, or return None when it is not all there."""
        data = self._buffer
        end = data.find(b"\r\n\r\n") + 4
        if (len(data) if end < 4 else end) > self.worker.limits.head_bytes:
            raise HeadError(431, "the request head is too large")
        if end < 4:
            check_partial(data)
            return None
        if end == len(data):
            request = self._reader.read(data)
            self._buffer = b""
        else:
            request = self._reader.read(data[:end])
            self._buffer = data[end:]
        return request

    def _start(self, head: RequestHead) -> None:
        raw = b""
        traits = head.traits
        if traits.has_body:
            raw, self._buffer = self._buffer, b""
            if traits.chunked or (traits.content_length or 0) > len(raw):
                self.pause_reading()
        self._state = ConnectionState.BUSY
        self.exchange = exchange = RequestCycle(self, head, raw)
        task = exchange.task = self.loop.create_task(exchange.run(self._application))
        self.tasks.add(task)

    def _take_ahead(self, data: bytes) -> None:
        exchange = self.exchange
        body = None if exchange is None else exchange.body
        if body is not None and not body.framing.complete:
            body.feed(data)
            return
        self._buffer += data
        if len(self._buffer) > PIPELINE_BYTES:
            self.pause_reading()

    def _start_draining(self, body: RequestBody | None) -> None:
        assert body is not None
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
            self._linger()
            return
        if body.framing.complete:
            self._draining = None
            self._buffer = data[used:]
            if self.closing:
                self._close()
            else:
                self._expect_head()

    def _linger(self) -> None:
        """Close our side and wait a little for the client's: it may still be sending.

        Closing with unread bytes would reset the connection, and the reset can overtake
        the answer (RFC 9112 §9.6).
        """
        self._state = ConnectionState.LINGERING
        self._buffer = b""
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
            self._linger()
        elif self._buffer:
            self.refuse(408, "the request head came too slowly")
        else:
            self._close()

    def _record_refusal(
        self, request_id: str, method: str, path: bytes, status: int, size: int, reason: str
    ) -> None:
        """Record a refusal that came before any exchange."""
        now, host = time.time(), self._host()
        plane = self.worker.planes.find(path)
        self._observe(
            RequestRecord(
                now, 0.0, request_id, method, path, b"", status, 0, size, host, plane, reason=reason
            )
        )

    def _observe(self, record: RequestRecord) -> None:
        for observe in self.worker.observers:
            observe(record)

    def _host(self) -> str:
        return self.client[0] if self.client else ""


def http_protocol(worker: ServerWorker) -> type[asyncio.Protocol]:
    """Return what ``uvicorn.Config(http=...)`` wants: a maker of connections of `worker`."""
    return cast("type[asyncio.Protocol]", functools.partial(HttpProtocol, worker))


def _address(name: object) -> tuple[str, int] | None:
    """Return host and port of a socket name, or None when it is not one of TCP."""
    if isinstance(name, tuple) and len(name) >= 2:
        return str(name[0]), int(name[1])
    return None


def _without_empty_lines(data: bytes) -> bytes:
    """Skip empty lines before a request line (RFC 9112 §2.2)."""
    while data.startswith(b"\r\n"):
        data = data[2:]
    return data


def _discard(part: memoryview) -> None:
    """Take content nobody wants."""

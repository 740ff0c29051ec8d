"""The body of one request, left in the socket until the application reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from cloudcore.serving.asgi import UNIT_BYTES, Message, Sink
from cloudcore.serving.bodies.connection import BodyConnection
from cloudcore.serving.bodies.framing import BodyFraming, CountedBody, FramingError
from cloudcore.serving.bodies.receiving import ReceiveJob
from cloudcore.serving.tls.transport import lend_socket

T = TypeVar("T")

PIECE_BYTES = UNIT_BYTES // 2
"""Size from which a message is full, so that the rest of the body stays in the socket. One read of
the event loop may bring more: up to 250 KiB."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
DISCONNECT: Message = {"type": "http.disconnect"}


class SocketBody:
    """A body in the socket: read in messages (ASGI) or moved to a sink by a bulk thread."""

    __slots__ = (
        "_awaits_continue", "_connection", "_decoded", "_raw", "_received", "_waiter",
        "failure", "framing", "given", "job",
    )  # fmt: skip

    def __init__(
        self, connection: BodyConnection, framing: BodyFraming, raw: bytes, *, awaits_continue: bool
    ) -> None:
        """Take over the body; `raw` are its bytes that came with the head."""
        self._connection = connection
        self._raw = raw
        self._decoded: bytes | bytearray = b""
        self._awaits_continue = awaits_continue
        self.given = False
        self._received = 0
        self._waiter: asyncio.Future[None] | None = None
        self.framing = framing
        self.failure: tuple[int, str] | None = None
        """Status and message of the response, if the application sends none."""
        self.job: ReceiveJob[Any] | None = None

    @property
    def received(self) -> int:
        """Return the number of content bytes received."""
        return self._received if self.job is None else self._received + self.job.content_bytes

    @property
    def arrived(self) -> int:
        """Return `received` plus the bytes in the socket, to measure progress."""
        return self.received + (0 if self.job is None else self.job.unread_bytes)

    @property
    def waits(self) -> bool:
        """Return True if the application waits in `next_message` for the client."""
        return self._waiter is not None

    def can_drain(self, limit: int) -> bool:
        """Return True if the client sends the rest unasked, and it is at most `limit` bytes.

        A client that waits for ``100 Continue`` does not send it.
        """
        if self._awaits_continue or self.failure:
            return False
        if isinstance(self.framing, CountedBody):
            return self.framing.remaining <= limit
        return self.framing.complete

    async def next_message(self) -> Message:
        """Return the next ``http.request`` message, or ``http.disconnect``."""
        self._invite()
        while True:
            raw = self.take_raw()
            if raw:
                self.feed(raw)
            complete = self.framing.complete
            if self._decoded or complete:
                part = bytes(self._decoded)
                self._decoded = b""
                self.given = complete
                return {"type": "http.request", "body": part, "more_body": not complete}
            if self._connection.peer_closed:
                self.failure = self.failure or (400, "the request body ended early")
            if self.failure:
                return DISCONNECT
            await self._wait()

    async def move(self, sink: Sink, finish: Callable[[bool], T]) -> T:
        """See `cloudcore.serving.asgi.HeldBody.receive_into`."""
        self._invite()
        connection = self._connection
        connection.pause_reading()
        if connection.is_tls and connection.write_paused:  # a job would have to send the rest
            await connection.drained()
        self._received -= len(self._decoded)
        buffered = (bytes(self._decoded), self._raw)
        self._decoded = b""
        self._raw = b""
        # The connection may have delivered the end, or a failure, before the start was given back.
        has_ended = self.framing.complete
        here = isinstance(self.framing, CountedBody) and self.framing.remaining <= len(buffered[1])
        worker = connection.worker
        self.job = job = ReceiveJob(
            connection.loop,
            worker.receivers,
            worker.limits,
            None if here or has_ended or self.failure else lend_socket(connection.transport),
            framing=self.framing,
            buffered=buffered,
            sink=sink,
            finish=finish,
        )
        try:
            result = await job.run()
        except BaseException:
            self.failure = self.failure or (500, "the request body could not be taken")
            raise
        finally:
            self._received += job.content_bytes
            self.job = None
        self.given = True
        if has_ended:  # the connection already has the bytes after the body
            connection.resume_reading()
        else:
            self._settle(job)
        return result

    def give_back(self, data: bytes) -> None:
        """See `cloudcore.serving.asgi.HeldBody.give_back`."""
        self._decoded = data + self._decoded if self._decoded else data

    def feed(self, data: bytes) -> None:
        """Store bytes from the connection; wake the waiting application."""
        if self.failure:
            return
        if self._raw:  # they come first; so these wait too, and all that follows in the socket
            self._raw += data
            self._connection.pause_reading()
            return
        try:
            used = self.framing.feed(data, len(data), self._keep)
        except FramingError as error:
            self.fail(400, str(error))
            return
        if self.framing.complete:
            self._connection.body_ended(data[used:])
        elif len(self._decoded) >= PIECE_BYTES:
            self._connection.pause_reading()
        self.wake()

    def take_raw(self) -> bytes:
        """Remove and return the bytes that have arrived but are not decoded yet."""
        raw, self._raw = self._raw, b""
        return raw

    def fail(self, status: int, message: str) -> None:
        """Fail the body: the client broke its framing or stalled."""
        self.failure = (status, message)
        self._connection.pause_reading()
        if self.job is not None:
            self.job.stop()
        self.wake()

    def wake(self) -> None:
        """Wake a waiting application."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _keep(self, part: memoryview) -> None:
        self._received += len(part)
        source = part.obj
        if not self._decoded and isinstance(source, bytes) and len(source) == len(part):
            self._decoded = source  # uncopied, as most messages are
            return
        if isinstance(self._decoded, bytes):
            self._decoded = bytearray(self._decoded)
        self._decoded += part

    def _invite(self) -> None:
        """Send ``100 Continue`` if the client waits for it (RFC 9110 §10.1.1)."""
        if self._awaits_continue:
            self._awaits_continue = False
            if not self._raw:
                self._connection.write(CONTINUE)

    async def _wait(self) -> None:
        self._waiter = self._connection.loop.create_future()
        self._connection.resume_reading()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _settle(self, job: ReceiveJob[Any]) -> None:
        """Take over the state of the body from a bulk job that has ended."""
        if job.framing.complete:
            self._connection.body_ended(job.surplus)
        elif job.broken is not None:
            self.failure = (400, str(job.broken))
        elif self.failure is None:
            self.failure = (400, "the request body ended early")


async def move_nothing(connection: BodyConnection, sink: Sink, finish: Callable[[bool], T]) -> T:
    """Call `finish` for a request without a body; see `SocketBody.move`."""
    body = SocketBody(connection, CountedBody(0), b"", awaits_continue=False)
    return await body.move(sink, finish)

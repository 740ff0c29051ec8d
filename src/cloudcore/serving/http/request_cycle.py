"""One request and its response, between connection and ASGI application."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote

from cloudcore.errors import PlatformError
from cloudcore.serving.asgi import Message, Scope, Sink
from cloudcore.serving.bodies.bulk import BulkJob
from cloudcore.serving.bodies.request_body import DISCONNECT, SocketBody, move_nothing
from cloudcore.serving.bodies.sending import send_parts, send_piece
from cloudcore.serving.dispatch import Application
from cloudcore.serving.http.head import RequestHead
from cloudcore.serving.http.response import Fields, read_fields, status_line
from cloudcore.serving.kept_answers import EXTENSION as KEEP
from cloudcore.serving.kept_answers import MOST_ANSWER_BYTES, KeepTerms
from cloudcore.serving.limits import ServerLimits, TransferPace

if TYPE_CHECKING:
    from cloudcore.serving.http.protocol import HttpProtocol

logger = logging.getLogger("cloudcore.serving")

T = TypeVar("T")

ASGI = {"version": "3.0", "spec_version": "2.3"}

BODILESS_STATUSES = frozenset((204, 304))
LARGE_BYTES = 64 * 1024
"""Size of a body from which a second write costs less than joining head and body."""


class ResponseError(RuntimeError):
    """The application violated ASGI or its own ``Content-Length``."""


class RequestCycle:
    """Passes one request to the application and its response to the client.

    The head of the response is written together with the first piece of its body, so that
    a small response is one segment and an early failure can still become a 500.
    """

    # Most requests never set these; class attributes cost nothing per request.
    body: SocketBody | None = None
    disconnected = False
    finished = False
    keep: KeepTerms | None = None  # how the answer may be given again
    rendered: tuple[bytes, bytes] | None = None  # with `keep`: status line; all after common lines
    reason = ""  # why the server itself refused or aborted it
    recorded_later = False  # its connection ended before its application did
    send_job: BulkJob[bool] | None = None
    sent = 0
    status = 0
    unsent = 0  # bytes of `sent` that were still unsent when the connection ended
    task: asyncio.Task[None] | None = None
    _asked = False  # True once the application has received the empty body
    _bodiless = False  # the response has no body; drop what the application sends
    _burst = 0  # bytes sent at the last yield to other tasks
    _chunked = False
    _fields: Fields | None = None
    _gone: asyncio.Future[None] | None = None
    _left: int | None = None  # remaining bytes of the Content-Length
    _opened = False
    _on_lost: Callable[[], None] | None = None
    _pace: TransferPace | None = None
    _rest = memoryview(b"")  # of a large piece of the body, not written yet

    def __init__(self, connection: HttpProtocol, head: RequestHead, raw: bytes) -> None:
        """Create the cycle; `raw` are bytes of a body that came with the head."""
        self.connection = connection
        self.head = head
        self.started_at = time.monotonic()
        traits = head.traits
        self.keep_alive = traits.keep_alive
        if traits.has_body:
            self.body = SocketBody(
                connection, traits.framing(), raw, awaits_continue=traits.expects_continue
            )
        self.scope = self._make_scope()

    def _make_scope(self) -> Scope:
        head, connection = self.head, self.connection
        path = head.path.decode("ascii")
        extensions: dict[str, object] = {
            "http.response.zerocopysend": {},
            "entrepot.held_body": self,
            "entrepot.send_parts": {},
        }
        if connection.worker.kept is not None:
            extensions[KEEP] = {}
        return {
            "type": "http",
            "asgi": ASGI,
            "http_version": head.http_version,
            "server": connection.server,
            "client": connection.client,
            "scheme": "https" if connection.is_tls else "http",
            "method": head.method,
            "root_path": "",
            "path": unquote(path) if "%" in path else path,
            "raw_path": head.path,
            "query_string": head.query,
            "headers": head.headers,
            "state": connection.app_state.copy(),
            "extensions": extensions,
        }

    @property
    def request_id(self) -> str:
        """Return the id that the application gave the request, or an empty string."""
        return str(self.scope["state"].get("request_id", ""))

    async def run(self, application: Application) -> None:
        """Run the application; the client always gets a response or a closed connection."""
        try:
            await application(self.scope, self.receive, self.send)
            if not self.finished:
                self._abandon("the application did not finish its response")
        except PlatformError as error:  # after the head, or the application would have rendered it
            more = {"request_id": self.request_id}
            logger.warning("the response was cut off: %s", error.message, extra=more)
            if not self.finished:
                self._abandon("cut off")
        except Exception:
            logger.exception("request failed", extra={"request_id": self.request_id})
            if not self.finished:
                self._abandon("internal server error")
        except asyncio.CancelledError:
            self.connection.abort()
            raise
        finally:
            self.connection.tasks.discard(self.task)
            if self.recorded_later:
                self.connection.record(self)
            # The scope refers to us: break the reference cycle, to spare the garbage collector.
            self.scope.pop("extensions", None)

    def _abandon(self, message: str) -> None:
        """End a response that the application left unfinished."""
        if self.disconnected:
            return
        if self._opened:
            self.connection.abort(message)
            return
        failure = None if self.body is None else self.body.failure
        self.connection.refuse(*(failure or (500, message)))

    async def receive(self) -> Message:
        """Return the next ASGI message to the application."""
        body = self.body
        if body is None:
            if not self._asked:
                self._asked = True
                return {"type": "http.request", "body": b"", "more_body": False}
        elif not body.given:
            return await body.next_message()
        await self._until_gone()
        return DISCONNECT

    async def receive_into(self, sink: Sink, finish: Callable[[bool], T]) -> T:
        """See `cloudcore.serving.asgi.HeldBody.receive_into`."""
        if self.body is None:
            self._asked = True
            return await move_nothing(self.connection, sink, finish)
        return await self.body.move(sink, finish)

    def give_back(self, data: bytes) -> None:
        """See `cloudcore.serving.asgi.HeldBody.give_back`."""
        assert self.body is not None
        self.body.give_back(data)

    def when_lost(self, call: Callable[[], None] | None) -> None:
        """See `cloudcore.serving.asgi.HeldBody.when_lost`."""
        self._on_lost = call
        if call is not None and self.disconnected:
            call()

    async def _until_gone(self) -> None:
        """Wait until the client disconnects or the response has ended."""
        if not (self.disconnected or self.finished or self.connection.peer_closed):
            self._gone = self.connection.loop.create_future()
            await self._gone

    async def send(self, message: Message) -> None:
        """Process an ASGI message from the application; ignore it after the client disconnected."""
        if self.disconnected:
            return
        kind = message["type"]
        connection = self.connection
        if self._fields is None:
            self._begin(message)
            return
        if self.finished:
            raise ResponseError(f"{kind} after the end of the response")
        more = message.get("more_body", False)
        if kind == "http.response.body":
            self._write(message.get("body", b""), more=more)
        elif kind == "http.response.zerocopysend":
            await self._send_file(message, more=more)
        elif kind == "entrepot.send_parts":
            await self._send_parts(message)
        else:
            raise ResponseError(f"unknown message {kind}")
        if (
            connection.write_paused
            or self.sent - self._burst >= connection.worker.limits.burst_bytes
        ):
            await self._give_way(len(message.get("body", b"")))
        if not more and not self.disconnected:
            self.end()

    def _begin(self, message: Message) -> None:
        """Store the head of the response; if the request timed out, an error becomes a 408.

        The application knows only that the body is incomplete, as if the client had disconnected.
        """
        if message["type"] != "http.response.start":
            raise ResponseError(f"expected http.response.start, got {message['type']}")
        status: int = message["status"]
        body = self.body
        failure = None if body is None else body.failure
        if failure is not None and status >= HTTPStatus.BAD_REQUEST:
            self.reason = failure[1]
            if failure[0] == HTTPStatus.REQUEST_TIMEOUT:
                self.connection.refuse(*failure)
                self.disconnected = True  # nothing more is sent
                return
        self.status = status
        self.keep = message.get(KEEP)
        self._fields = read_fields(message.get("headers", ()), self.connection.worker.header_names)

    def _write(self, body: bytes, *, more: bool) -> None:
        """Write a piece of the body, with the head before the first."""
        size = len(body)
        is_whole = not (more or self._opened)
        head = b"" if self._opened else self._open(None if more else size)
        if is_whole and self.keep is not None and size <= MOST_ANSWER_BYTES:  # it is a copy
            self._note_rendered(head, b"" if self._bodiless else body)
        if self._bodiless:
            self.connection.write(head)
            return
        self._promise(size)
        if not self._chunked:
            if size > LARGE_BYTES:
                self.connection.write(head)  # separately: joining would copy the body
                self._rest = memoryview(body)
                self._write_burst()
            else:
                self.sent += size
                self.connection.write(b"".join((head, body)) if head else body)
            return
        self.sent += size
        end = b"" if more else b"0\r\n\r\n"
        chunk = (b"%x\r\n" % size, body, b"\r\n") if size else ()
        self.connection.write(b"".join((head, *chunk, end)))

    def _write_burst(self) -> None:
        """Write the next part of a large piece; copying a megabyte takes a millisecond."""
        part = self._rest[: self.connection.worker.limits.burst_bytes]
        self._rest = self._rest[len(part) :]
        self.sent += len(part)
        self.connection.write(part)

    def _note_rendered(self, head: bytes, body: bytes) -> None:
        """Store an answer that may be sent again: its status line, and all but the common lines."""
        start = status_line(self.status)
        skipped = len(start) + len(self.connection.common_lines())
        self.rendered = start, head[skipped:] + body

    async def _send_file(self, message: Message, *, more: bool) -> None:
        """Send a piece of an open file (ASGI extension ``http.response.zerocopysend``).

        The message must have a descriptor, an offset and a count, as `FileRegion.message` makes it.
        """
        descriptor, offset, count = message["file"], message["offset"], message["count"]
        if not count:
            self._write(b"", more=more)
            return
        head = b"" if self._opened else self._open(None if more else count)
        if self._bodiless:
            self.connection.write(head)
            return
        self._promise(count)
        if self._chunked:
            head += b"%x\r\n" % count
        if not self._delivered(await send_piece(self, head, descriptor, offset, count)):
            return
        if self._chunked:
            self.connection.write(b"\r\n" if more else b"\r\n0\r\n\r\n")

    async def _send_parts(self, message: Message) -> None:
        """Send a body, or the rest of one, made in a bulk thread (our own ASGI extension).

        ``parts`` makes the body (`cloudcore.serving.bodies.sending.Parts`), ``count`` is its length
        in bytes. Only small parts are in memory at once.
        """
        count = message["count"]
        head = b"" if self._opened else self._open(count)
        if self._chunked:
            raise ResponseError("a body in parts has a Content-Length")
        if self._bodiless or not count:
            self.connection.write(head)
            return
        self._promise(count)
        self._delivered(await send_parts(self, head, message["parts"], count))

    def _delivered(self, is_delivered: bool) -> bool:  # noqa: FBT001 - passed through
        """Abort the connection if the body was not delivered; return `is_delivered`."""
        if not is_delivered:
            self.connection.abort()
            self.lose()
        return is_delivered

    async def _give_way(self, kept: int) -> None:
        """Wait for a slow client, with `kept` bytes in memory; for a fast one, let other tasks run.

        While a large piece is written, repeat that after each part.
        """
        while True:
            self._burst = self.sent
            if self.connection.write_paused:
                await self.connection.drained(kept)
            else:
                await asyncio.sleep(0)
            if not self._rest or self.disconnected:
                return
            self._write_burst()

    def _open(self, size: int | None) -> bytes:
        """Return the head of the response; `size` is the length of the whole body, if known."""
        fields = self._fields
        assert fields is not None
        self._opened = True
        length = self._settle_framing(fields.content_length, size)
        connection = self.connection
        if fields.closes or connection.closing or not self._can_reuse():
            self.keep_alive = False
        head = [status_line(self.status), connection.common_lines(), fields.block]
        if self._chunked:
            head.append(b"transfer-encoding: chunked\r\n")
        elif length is not None:
            head.append(b"content-length: %d\r\n" % length)
        if not self.keep_alive:
            head.append(b"connection: close\r\n")
        elif self.head.http_version == "1.0":
            head.append(b"connection: keep-alive\r\n")
        head.append(b"\r\n")
        return b"".join(head)

    def _settle_framing(self, length: int | None, size: int | None) -> int | None:
        """Choose the framing of the body; return the Content-Length to send, or None."""
        if self.status in BODILESS_STATUSES:
            self._bodiless = True
            return None if self.status == 204 else length
        if self.head.method == "HEAD":
            self._bodiless = True
            return length if length is not None else (size or None)
        if length is None:
            length = size
        self._left = length
        if length is None:
            self._chunked = self.head.http_version == "1.1"
            self.keep_alive = self.keep_alive and self._chunked
        return length

    def _can_reuse(self) -> bool:
        """Return True if the connection can be reused after this request's body."""
        body = self.body
        return body is None or body.can_drain(self.connection.worker.limits.refusal_drain_bytes)

    def _promise(self, count: int) -> None:
        """Subtract `count` from the body bytes to send; raise `ResponseError` if it is too many."""
        if self._left is not None:
            self._left -= count
            if self._left < 0:
                raise ResponseError("the response is longer than its Content-Length")

    def end(self) -> None:
        """End the response; raise `ResponseError` if it is shorter than its Content-Length."""
        if self._left:
            raise ResponseError("the response is shorter than its Content-Length")
        self.finished = True
        self._wake()
        self.connection.cycle_ended(self)

    def _wake(self) -> None:
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def peer_closed(self) -> None:
        """Record that the client sends no more; it may still read."""
        self._wake()
        if self.body is not None:
            self.body.wake()

    def lose(self) -> None:
        """Record that the connection is lost, and stop all work for it."""
        self.disconnected = True
        self.reason = self.reason or "the client left"
        self._wake()
        if self._on_lost is not None:
            self._on_lost()
        if self.send_job is not None:
            self.send_job.stop()
        body = self.body
        if body is not None:
            body.fail(400, "the client left")

    def sweep(self, now: float, limits: ServerLimits, *, crowded: bool) -> None:
        """Stop receiving from or sending to a client that is too slow; end an overdue request."""
        if limits.request_seconds and now - self.started_at > limits.request_seconds:
            self._end_overdue(now, limits)
            return
        body, job = self.body, self.send_job
        if body is not None and not body.waits and body.job is None:
            body = None  # nothing of it is being received
        if body is not None:
            waiting = body.waits or (body.job is not None and body.job.waiting)
            moved = body.arrived
        else:
            waiting = self.connection.write_paused if job is None else job.waiting
            moved = self.sent + (0 if job is None else job.moved)
            moved = max(0, moved - self.connection.waiting_bytes()) if moved else 0
        if self._pace is None:
            self._pace = TransferPace()
        receiving = body is not None
        fault = self._pace.fault(
            now, limits, receiving=receiving, waiting=waiting, moved=moved, crowded=crowded
        )
        if fault is None:
            return
        if body is not None:
            body.fail(HTTPStatus.REQUEST_TIMEOUT, fault)
        else:
            self.connection.abort(fault)

    def _end_overdue(self, now: float, limits: ServerLimits) -> None:
        """End a request that has exceeded the maximum time; send an error if no response began.

        The rest of the request's body is cut off. The application processes what has arrived, so
        that an upload can be resumed, and its error becomes a 408.
        """
        fault = f"the request took longer than {limits.request_seconds:g} s"
        body = self.body
        ends_at = self.started_at + limits.request_seconds + limits.request_grace_seconds
        if self.status:
            self.connection.abort(fault)
        elif body is not None and not body.framing.complete and now <= ends_at:
            body.fail(HTTPStatus.REQUEST_TIMEOUT, fault)
        elif body is not None and body.job is not None:  # the job still uses the connection
            self.connection.abort(fault)
        else:
            self.lose()
            self.connection.refuse(HTTPStatus.SERVICE_UNAVAILABLE, fault)

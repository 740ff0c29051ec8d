"""One HTTP/1.1 client connection: send requests, parse responses, and the errors of both.

The parser is httptools', as on the server side: each byte of a body is copied once.
"""

from __future__ import annotations

import asyncio
import re
import select
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final, Literal, cast

import httptools

from cloudcore.clock import MICROSECONDS

RequestStage = Literal["dns", "connect", "tls", "answer"]


class RequestFailed(Exception):
    """A request has no usable response; the message has the reason, without headers and secrets."""


class Unreachable(RequestFailed):
    """The host could not be reached, or stopped in the middle of its response."""

    def __init__(self, message: str, stage: RequestStage) -> None:
        super().__init__(message)
        self.stage: RequestStage = stage
        """The stage at which the request failed."""


class BadAnswer(RequestFailed):
    """The response is not HTTP, or larger than allowed."""


class AnswerTooLong(BadAnswer):
    """The response is larger than allowed."""


MAX_HEAD: Final = 64 * 1024
"""Maximum bytes of a response's head, including its trailers."""
_MAX_INTERIM: Final = 8
_WHOLE_PIECE: Final = 64 * 1024
_CONTINUED: Final = range(100, 200)
_BODILESS: Final = frozenset({204, 304})
_LENGTH_DIGITS: Final = 18
_RETRY_SECONDS: Final = re.compile(r"[0-9]{1,9}")
_OPENING: Final = b"HTTP/"


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """The status and headers of a response."""

    status: int
    headers: Sequence[tuple[str, str]]
    """Names in lower case."""

    def all(self, name: str) -> list[str]:
        """Return all values of a header."""
        return [value for known, value in self.headers if known == name]

    def get(self, name: str) -> str | None:
        """Return the value of a header; None if it is absent, or repeated."""
        found = self.all(name)
        return found[0] if len(found) == 1 else None

    @property
    def length(self) -> int | None:
        """Return the ``Content-Length``, or None if it is absent or malformed."""
        text = self.get("content-length") or ""
        is_number = text.isascii() and text.isdigit() and len(text) <= _LENGTH_DIGITS
        return int(text) if is_number else None

    def retry_after(self, now: int) -> int | None:
        """Return the seconds that ``Retry-After`` asks for, from `now` (microseconds) on.

        A date without a zone is in UTC (RFC 9110 §5.6.7). Return None if the header is absent or
        malformed (§10.2.3).
        """
        text = (self.get("retry-after") or "").strip()
        if _RETRY_SECONDS.fullmatch(text):
            return int(text)
        try:
            moment = parsedate_to_datetime(text)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return max(0, int(moment.timestamp()) - now // MICROSECONDS)
        except (ValueError, OverflowError):  # the latter for numbers of many digits
            return None


class AnswerParser:
    """Parses one response, and buffers the unread part of its body."""

    def __init__(self, *, to_head: bool) -> None:
        """Prepare for the next response; one to a HEAD request (`to_head`) has no body."""
        self.head: AnswerHead | None = None
        self.failure: RequestFailed | None = None
        self.is_done = False
        """True once the last byte of the response has arrived."""
        self.keeps_alive = True
        """False if the connection cannot be reused."""
        self.buffered = 0
        """Bytes of the body that have not been read yet."""
        self.fed = 0
        """Bytes that arrived, of head and body."""
        self._to_head = to_head
        self._first = b""
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[str, str]] = []
        self._head_bytes = 0
        self._interim = 0
        self._pieces: deque[bytes] = deque()
        self._ends_with_connection = False

    @property
    def has_begun(self) -> bool:
        """Return True if bytes arrived that may be the start of the response."""
        return bool(self._first) and _OPENING.startswith(self._first)

    def feed(self, data: bytes) -> None:
        """Parse some bytes; an error in them is stored in `failure`."""
        if self.is_done or self.failure is not None:  # nobody asked for more
            self.keeps_alive = False
            return
        self._first += data[: len(_OPENING) - len(self._first)]
        self.fed += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.keeps_alive = False
            if not self.is_done:
                self.fail(BadAnswer("it answered with what is not HTTP"))
        if self.head is None and self.fed > MAX_HEAD:
            self._fail_for_head()

    def end(self, *, is_error: bool) -> None:
        """Process the end of the connection; `is_error` means that it broke.

        This completes a response that has neither a length nor chunks; any other one fails.
        """
        if self.is_done:
            return
        if self._ends_with_connection and not is_error:
            self.is_done = True
        else:
            self.fail(Unreachable("it closed the connection before the answer's end", "answer"))

    def fail(self, failure: RequestFailed) -> None:
        """Store a failure, unless there already is one."""
        self.failure = self.failure or failure
        self.keeps_alive = False

    def take(self) -> bytes:
        """Return the unread bytes of the body that arrived; empty if all have been read."""
        if not self._pieces:
            return b""
        if len(self._pieces[0]) >= _WHOLE_PIECE or len(self._pieces) == 1:
            piece = self._pieces.popleft()
        else:  # many small ones cost their reader more than a copy
            piece = b"".join(self._pieces)
            self._pieces.clear()
        self.buffered -= len(piece)
        return piece

    # What httptools calls:

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header, or drop a trailer."""
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > MAX_HEAD:
            self._fail_for_head()
        elif self.head is None:
            self._headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        """Store the head, unless it is informational (1xx)."""
        if self.is_done:  # a second answer
            self.keeps_alive = False
            return
        if self.failure is not None:
            return
        status = self._parser.get_status_code()
        if status in _CONTINUED:
            self._interim += 1
            self._headers = []
            if self._interim > _MAX_INTERIM:
                self.fail(BadAnswer("it answered with many interim answers"))
            return
        self.head = AnswerHead(status, tuple(self._headers))
        self.keeps_alive = self.keeps_alive and self._parser.should_keep_alive()
        has_length = self.head.all("content-length") or self.head.all("transfer-encoding")
        self._ends_with_connection = not has_length
        self.is_done = self._to_head or status in _BODILESS

    def on_body(self, data: bytes) -> None:
        """Buffer bytes of the body until they are read."""
        if self.is_done:  # a body where none belongs
            self.keeps_alive = False
        elif self.failure is None:
            self._pieces.append(data)
            self.buffered += len(data)

    def on_message_complete(self) -> None:
        """Mark the response as complete."""
        if self.head is not None:
            self.is_done = True

    def _fail_for_head(self) -> None:
        self.fail(BadAnswer(f"the head of its answer has more than {MAX_HEAD} bytes"))


_HIGH_WATER: Final = 1024 * 1024
_LOW_WATER: Final = 256 * 1024


class HttpConnection(asyncio.Protocol):
    """A connection to a checked address."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._is_open = False
        self._is_paused = False
        self._answer: AnswerParser | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_reusable(self) -> bool:
        """Return True if another request can be sent: the last response is complete and allows it.

        Return False if unexpected bytes arrived since, which would be taken for the next response.
        """
        answer = self._answer
        is_over = answer is not None and answer.is_done and answer.keeps_alive
        return self._is_open and is_over and not self._is_paused and not self._has_unread()

    @property
    def has_begun_answer(self) -> bool:
        """Return True if the response to the last request has begun."""
        return self._answer is not None and self._answer.has_begun

    def send(self, method: str, request: bytes) -> None:
        """Send a request, head and body."""
        assert self._transport is not None
        self._answer = AnswerParser(to_head=method == "HEAD")
        if self._is_open:
            self._transport.write(request)
        else:
            self._answer.end(is_error=True)

    async def head(self) -> AnswerHead:
        """Return the head of the response; the caller limits the time.

        Raise `RequestFailed` if it does not arrive completely, or is not valid.
        """
        answer = self._current()
        while answer.head is None:
            await self._more(answer)
        return answer.head

    async def read(self) -> bytes:
        """Return the next bytes of the body, or none at its end; the caller limits the time.

        If the connection fails, raise `RequestFailed`, but only after all bytes that came before
        have been returned.
        """
        answer = self._current()
        while not answer.buffered and not answer.is_done:
            await self._more(answer)
        piece = answer.take()
        if self._is_paused and answer.buffered <= _LOW_WATER and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        return piece

    def abort(self) -> None:
        """Close the connection at once."""
        self._is_open = False
        if self._transport is not None:
            self._transport.abort()

    # What asyncio calls:

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        # The transports of uvloop are of no class of asyncio.
        self._transport, self._is_open = cast("asyncio.Transport", transport), True

    def data_received(self, data: bytes) -> None:
        """Parse received bytes."""
        answer = self._answer
        if answer is None or answer.is_done or self._transport is None:  # nobody has asked
            self.abort()
            return
        answer.feed(data)
        if answer.failure is not None:
            self.abort()
        elif answer.buffered > _HIGH_WATER and not self._is_paused and not answer.is_done:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        """End the response; this is an error unless the connection's end also ends the body."""
        self._is_open = False
        if self._answer is not None:
            self._answer.end(is_error=error is not None)
        self._wake()

    def _has_unread(self) -> bool:
        """Return True if the socket has unread bytes, or the connection is ending."""
        assert self._transport is not None
        if self._transport.is_closing():
            return True
        socket = select.poll()
        socket.register(self._transport.get_extra_info("socket"), select.POLLIN)
        return bool(socket.poll(0))

    def _current(self) -> AnswerParser:
        assert self._answer is not None
        return self._answer

    async def _more(self, answer: AnswerParser) -> None:
        if answer.failure is not None:
            raise answer.failure
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

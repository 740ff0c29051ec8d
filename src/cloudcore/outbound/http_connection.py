"""One client connection of HTTP/1.1: requests one after the other, bodies as they come."""

from __future__ import annotations

import asyncio
import select
from typing import Final, cast

from cloudcore.outbound.answer_parser import AnswerParser, Head

_HIGH_WATER: Final = 1024 * 1024
_LOW_WATER: Final = 256 * 1024


class HttpConnection(asyncio.Protocol):
    """A connection to a vetted address."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._is_open = False
        self._is_paused = False
        self._answer: AnswerParser | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_reusable(self) -> bool:
        """Return True if another request can be sent: the last answer is over, and was the last.

        Nothing has come since, or is about to be read: it would be taken for the next answer.
        """
        answer = self._answer
        is_over = answer is not None and answer.is_done and answer.keeps_alive
        return self._is_open and is_over and not self._is_paused and not self._has_unread()

    @property
    def has_begun_answer(self) -> bool:
        """Return True if the answer to the last request has begun."""
        return self._answer is not None and self._answer.has_begun

    def send(self, method: str, request: bytes) -> None:
        """Send a request, head and body."""
        assert self._transport is not None
        self._answer = AnswerParser(to_head=method == "HEAD")
        if self._is_open:
            self._transport.write(request)
        else:
            self._answer.end(is_error=True)

    async def head(self) -> Head:
        """Return the head of the answer; the caller limits the time.

        Raises:
            RequestFailed.

        """
        answer = self._current()
        while answer.head is None:
            await self._more(answer)
        return answer.head

    async def read(self) -> bytes:
        """Return the next bytes of the body, or none at its end; the caller limits the time.

        Raises:
            RequestFailed: after all bytes that came before.

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
        """Take the transport."""
        # The transports of uvloop are of no class of asyncio.
        self._transport, self._is_open = cast("asyncio.Transport", transport), True

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
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
        """End the answer, rightly only if it goes until the end of the connection."""
        self._is_open = False
        if self._answer is not None:
            self._answer.end(is_error=error is not None)
        self._wake()

    def _has_unread(self) -> bool:
        """Return True if the socket has bytes, or its end, that the event loop has not read."""
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

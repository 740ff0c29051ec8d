"""Relay TCP streams, and HTTP/1.1 one request at a time, between clients and targets.

It imports only the standard library, as it is part of a separate program.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from cloudcore.loadbalancer.proxy.heads import (
    CHUNKED,
    READ_BYTES,
    UNTIL_CLOSE,
    Malformed,
    Request,
    Response,
    framed,
    parts_of,
    read_request,
    read_response,
)
from cloudcore.loadbalancer.proxy.targets import Channel, ProxyBackend

KEEP_ALIVE_SECONDS: Final = 15
IDLE_SECONDS: Final = 60
"""How long no byte may pass within a request."""
STREAM_SECONDS: Final = 350
"""How long no byte may pass on a TCP listener, and after `101 Switching Protocols`."""
_LINGER_SECONDS: Final = 2
_LINGER_BYTES: Final = 256 * 1024


class ClientGone(Exception):
    """A client has closed its connection in the middle of a request."""


class Metrics:
    """The counters of a proxy since its start; `answers` is by class of status, such as ``2xx``."""

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections = 0
        self.requests = 0
        self.answers: dict[str, int] = {}

    def count_in(self, count: int) -> None:
        """Count bytes from a client."""
        self.bytes_in += count

    def count_out(self, count: int) -> None:
        """Count bytes to a client."""
        self.bytes_out += count

    def count_answer(self, status: int) -> None:
        """Count a response by its status."""
        name = f"{status // 100}xx"
        self.answers[name] = self.answers.get(name, 0) + 1


async def relay_stream(client: Channel, backend: ProxyBackend, metrics: Metrics) -> None:
    """Connect to a target and relay both directions until both have ended.

    Abort after `STREAM_SECONDS` without data. If no target accepts, return at once.
    """
    server = await backend.connect()
    if server is not None:
        await _relay_both(client, server, metrics)


async def _relay_both(client: Channel, server: Channel, metrics: Metrics) -> None:
    try:
        async with asyncio.timeout(STREAM_SECONDS) as idle, asyncio.TaskGroup() as both:
            both.create_task(_copy(client.reader, server.writer, metrics.count_in, idle))
            both.create_task(_copy(server.reader, client.writer, metrics.count_out, idle))
    except* OSError:
        server.writer.transport.abort()
    finally:
        server.close()


async def _copy(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    count: Callable[[int], None],
    idle: asyncio.Timeout,
) -> None:
    while part := await reader.read(READ_BYTES):
        count(len(part))
        _put_off(idle, STREAM_SECONDS)
        writer.write(part)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
    else:
        writer.close()


def _put_off(idle: asyncio.Timeout, seconds: float) -> None:
    if not idle.expired():
        idle.reschedule(asyncio.get_running_loop().time() + seconds)


class Conversation:
    """The HTTP requests of one client over one connection."""

    def __init__(
        self,
        client: Channel,
        backend: ProxyBackend,
        metrics: Metrics,
        *,
        address: str,
        protocol: str,
        head_seconds: float,
        is_draining: Callable[[], bool],
    ) -> None:
        self._client = client
        self._backend = backend
        self._metrics = metrics
        self._address = address
        self._protocol = protocol
        self._head_seconds = head_seconds
        self._is_draining = is_draining
        self._is_answered = False

    async def run(self) -> None:
        """Answer requests until the client or a response ends the connection."""
        is_first = True
        while await self._answer_one(is_first=is_first):
            is_first = False

    async def _answer_one(self, *, is_first: bool) -> bool:
        """Answer the next request; return True if another one may follow on this connection."""
        seconds = self._head_seconds if is_first else KEEP_ALIVE_SECONDS
        self._is_answered = False
        try:
            async with asyncio.timeout(seconds):
                request = await read_request(self._client.reader)
            self._metrics.requests += 1
            self._metrics.bytes_in += request.size
            return await self._pass_on(request)
        except Malformed as malformed:
            await self._refuse(malformed.status)
        except TimeoutError:
            if is_first:  # a client that sends no further request is just done
                await self._refuse(408)
        except (EOFError, ClientGone):
            pass
        return False

    async def _refuse(self, status: int) -> None:
        """Answer with an error status; reset the connection if a response has already begun."""
        if self._is_answered:
            _reset(self._client)
            return
        phrase = HTTPStatus(status).phrase
        body = f"{status} {phrase}\n".encode()
        await self._send(
            b"HTTP/1.1 %d %b\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n"
            b"Connection: close\r\n\r\n%b" % (status, phrase.encode(), len(body), body)
        )
        self._metrics.count_answer(status)
        await self._linger()

    async def _linger(self) -> None:
        """Read a little of what the client still sends, so that it receives the answer.

        A connection that is closed with unread bytes is reset, which may discard the answer.
        """
        writer = self._client.writer
        if writer.can_write_eof():
            writer.write_eof()
            left = _LINGER_BYTES
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LINGER_SECONDS):
                    while left > 0 and (part := await self._client.reader.read(READ_BYTES)):
                        left -= len(part)

    async def _send(self, data: bytes) -> None:
        self._metrics.bytes_out += len(data)
        self._client.writer.write(data)
        await self._client.writer.drain()

    async def _pass_on(self, request: Request) -> bool:
        """Forward a request to a target; return True if another request may follow.

        Try the next target if one accepts no connection or, for a repeatable request, ends the
        connection without a response. Raise `Malformed` with 502 or 503 if no target responds.
        """
        for target in self._backend.in_turn():
            try:
                server = await target.connect()
            except OSError:
                continue
            try:
                return await self._exchange(request, server)
            except EOFError:
                if not request.is_repeatable:
                    raise Malformed(502) from None
            finally:
                server.close()
        raise Malformed(503)

    async def _exchange(self, request: Request, server: Channel) -> bool:
        """Send the request and forward the response; return True if another request may follow.

        Raise `EOFError` if the target ends the connection without a response.
        """
        server.writer.write(request.passed_on(self._address, self._protocol))
        body = None
        try:
            async with asyncio.timeout(IDLE_SECONDS) as idle:
                if request.length:
                    body = asyncio.create_task(self._send_body(request, server, idle))
                response = await self._response(request, server, body)
                self._metrics.count_answer(response.status)
                if response.status == 101:
                    idle.reschedule(None)
                    await self._change_protocol(response, server)
                    return False
                is_early = body is not None and not _is_whole(body)
                may_follow = await self._pass_back(
                    request, response, server, idle, is_last=is_early
                )
        except TimeoutError:
            raise Malformed(504) from None
        finally:
            if body is not None:
                body.cancel()
                await asyncio.gather(body, return_exceptions=True)
        if is_early:
            await self._linger()
        return may_follow

    async def _response(
        self, request: Request, server: Channel, body: asyncio.Task[bool] | None
    ) -> Response:
        """Return the final response head; forward interim responses (1xx)."""
        while True:
            response = await self._response_beside(request, server, body)
            if response.status == 101 and None in (response.upgrade, request.upgrade):
                raise Malformed(502)
            if response.status >= 200 or response.status == 101:
                return response
            if request.minor > 0:
                await self._send(response.passed_on(0, is_last=False))

    async def _response_beside(
        self, request: Request, server: Channel, body: asyncio.Task[bool] | None
    ) -> Response:
        """Return the next response head.

        If sending the request's body fails first, raise that error; raise `EOFError` if the target
        ends the connection.
        """
        head = asyncio.ensure_future(read_response(server.reader, request.method))
        try:
            if body is not None:
                await asyncio.wait([head, body], return_when=asyncio.FIRST_COMPLETED)
                if not head.done():
                    body.result()
            return await head
        except ConnectionError as error:
            raise EOFError from error
        finally:
            head.cancel()

    async def _send_body(self, request: Request, server: Channel, idle: asyncio.Timeout) -> bool:
        """Send the request's body; return False if the target accepts no more of it.

        Raise `ClientGone` if the client does not send all of it.
        """
        try:
            async for part in parts_of(self._client.reader, request.length):
                self._metrics.bytes_in += len(part)
                _put_off(idle, IDLE_SECONDS)
                server.writer.write(framed(part, request.length))
                try:
                    await server.writer.drain()
                except OSError:
                    return False  # the target may have answered already
        except (EOFError, OSError):
            raise ClientGone from None
        if request.length == CHUNKED:
            server.writer.write(b"0\r\n\r\n")
        return True

    async def _pass_back(
        self,
        request: Request,
        response: Response,
        server: Channel,
        idle: asyncio.Timeout,
        *,
        is_last: bool,
    ) -> bool:
        length = response.length
        if length in (CHUNKED, UNTIL_CLOSE):  # HTTP/1.0 has no chunks
            length = CHUNKED if request.minor > 0 else UNTIL_CLOSE
        is_last = is_last or request.is_last or self._is_draining()
        self._is_answered = True
        unsent = response.passed_on(length, is_last=is_last)
        try:
            async for part in parts_of(server.reader, response.length):
                _put_off(idle, IDLE_SECONDS)
                await self._send(unsent + framed(part, length))
                unsent = b""
        except (EOFError, OSError):
            raise Malformed from None  # the client must see that the response is incomplete
        if length == CHUNKED:
            unsent += b"0\r\n\r\n"
        if unsent:
            await self._send(unsent)
        return not is_last

    async def _change_protocol(self, response: Response, server: Channel) -> None:
        self._is_answered = True
        await self._send(response.passed_on(0, is_last=False))
        await _relay_both(self._client, server, self._metrics)


def _reset(client: Channel) -> None:
    """Reset a connection, as its end alone could be that of a response without a length."""
    at_once = struct.pack("ii", 1, 0)
    opened = client.writer.get_extra_info("socket")
    with contextlib.suppress(OSError):  # the client has closed it
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
    client.writer.transport.abort()


def _is_whole(body: asyncio.Task[bool]) -> bool:
    """Return True if the client's body was read to its end, so that a request follows it."""
    return body.done() and body.exception() is None and body.result()

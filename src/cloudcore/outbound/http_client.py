"""An HTTP client for hosts that users name: checked addresses, no proxies, no redirects.

A name is resolved once for each connection, all its addresses are checked, and one of them is
connected to without a second resolution; the certificate must still be for the name. Connections
are reused for later requests to the same origin.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Final, NamedTuple

from cloudcore.outbound.destinations import (
    Address,
    Allowed,
    Destination,
    check_addresses,
    check_url,
    literal_address,
)
from cloudcore.outbound.host_lookup import Resolve, resolve
from cloudcore.outbound.http_connection import (
    AnswerHead,
    AnswerTooLong,
    HttpConnection,
    RequestFailed,
    RequestStage,
    Unreachable,
)


class BodyRate:
    """Checks that a body arrives fast enough.

    Only the time in which the reader waited counts: a slow disk on our side is not the host's
    fault.
    """

    def __init__(self, window: float, lowest_rate: int) -> None:
        self._window = window
        self._lowest_rate = lowest_rate
        self._waited = 0.0
        self._received = 0

    def add(self, count: int, waited: float) -> None:
        """Count bytes, and the seconds spent waiting for them.

        Raise `Unreachable` if they were too slow over the last window.
        """
        self._received += count
        self._waited += waited
        if self._waited < self._window:
            return
        if self._received < self._lowest_rate * self._waited:
            raise Unreachable(f"it sent fewer than {self._lowest_rate} bytes per second", "answer")
        self._waited, self._received = 0.0, 0


IDLE_SECONDS: Final = 20.0
"""Seconds for which an idle connection is kept: fewer than servers usually keep one."""


class IdleConnections:
    """The idle connections of one client, by origin."""

    def __init__(self, max_per_origin: int) -> None:
        self._max_per_origin = max_per_origin
        self._kept: dict[str, dict[HttpConnection, asyncio.TimerHandle]] = {}
        """The timers that close the connections of each origin; the last used one is last."""

    def take(self, origin: str) -> HttpConnection | None:
        """Return the most recently used connection that is still open, or None."""
        while kept := self._kept.get(origin):
            connection = next(reversed(kept))
            self._remove(origin, connection)
            if connection.is_reusable:
                return connection
            connection.abort()
        return None

    def give_back(self, origin: str, connection: HttpConnection) -> None:
        """Store a connection for reuse; close it if it cannot be reused, or there are enough."""
        kept = self._kept.get(origin, {})
        if not connection.is_reusable or len(kept) >= self._max_per_origin:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        kept[connection] = loop.call_later(IDLE_SECONDS, self._drop, origin, connection)
        self._kept[origin] = kept

    def close(self) -> None:
        """Close all connections."""
        for origin, kept in list(self._kept.items()):
            for connection in list(kept):
                self._drop(origin, connection)

    def _drop(self, origin: str, connection: HttpConnection) -> None:
        self._remove(origin, connection)
        connection.abort()

    def _remove(self, origin: str, connection: HttpConnection) -> None:
        kept = self._kept[origin]
        kept.pop(connection).cancel()
        if not kept:
            del self._kept[origin]


MAX_IDLE: Final = 8
"""Maximum number of idle connections of a client to one origin."""
_MAX_ADDRESSES: Final = 4


class TimeLimits(NamedTuple):
    """Time limits of a request, in seconds."""

    connect: float = 10.0
    """From the resolution of the name to the end of the TLS handshake."""
    head: float = 30.0
    """From the request to the end of the answer's head."""
    idle: float = 30.0
    """Between two bytes of a body."""
    rate_window: float = 60.0
    """Seconds of waiting over which the rate of a body is measured."""
    lowest_rate: int = 1024
    """Minimum bytes per second of waiting; time that the reader itself needs does not count."""
    small_answer: float = 30.0
    """For reading a whole body (`HttpAnswer.read`)."""


TIME_LIMITS: Final = TimeLimits()


class HttpAnswer:
    """A response whose body has not been read yet."""

    def __init__(self, head: AnswerHead, connection: HttpConnection, limits: TimeLimits) -> None:
        self.head = head
        self._connection = connection
        self._limits = limits

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives.

        Raise `RequestFailed` if the body is too slow, or ends before its length.
        """
        pace = BodyRate(self._limits.rate_window, self._limits.lowest_rate)
        while True:
            began = asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(self._limits.idle):
                    piece = await self._connection.read()
            except TimeoutError:
                raise Unreachable(
                    f"it sent nothing for {self._limits.idle:g} seconds", "answer"
                ) from None
            if not piece:
                return
            pace.add(len(piece), asyncio.get_running_loop().time() - began)
            yield piece

    async def read(self, max_bytes: int) -> bytes:
        """Return the whole body.

        Raise `RequestFailed` if the body is longer than `max_bytes`, or too slow.
        """
        if (self.head.length or 0) > max_bytes:
            raise AnswerTooLong(f"it answered with more than {max_bytes} bytes")
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.small_answer):
                while piece := await self._connection.read():
                    body += piece
                    if len(body) > max_bytes:
                        raise AnswerTooLong(f"it answered with more than {max_bytes} bytes")
        except TimeoutError:
            seconds = self._limits.small_answer
            raise Unreachable(f"it took more than {seconds:g} seconds", "answer") from None
        return bytes(body)


class HttpClient:
    """An HTTP/1.1 client for hosts that users name; one per process and purpose."""

    def __init__(
        self,
        allowed: Allowed,
        *,
        resolve: Resolve = resolve,
        limits: TimeLimits = TIME_LIMITS,
        tls: ssl.SSLContext | None = None,
        max_idle: int = MAX_IDLE,
    ) -> None:
        """Make a client; `tls` replaces the public roots, `max_idle` is a limit per origin."""
        self.allowed = allowed
        self._resolve = resolve
        self._limits = limits
        self._given_tls = tls
        self._idle = IdleConnections(max_idle)

    async def check_destination(self, url: str) -> Destination:
        """Return the destination of a URL, with the addresses of its host checked.

        A name that cannot be resolved now is accepted: each connection checks again.

        Raise `NotAllowed` if the URL or one of its addresses may not be called.
        """
        destination = check_url(url, self.allowed)
        try:
            async with asyncio.timeout(self._limits.connect):
                addresses = await self._addresses(destination)
        except (TimeoutError, Unreachable):
            return destination
        check_addresses(destination, addresses, self.allowed)
        return destination

    @asynccontextmanager
    async def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> AsyncIterator[HttpAnswer]:
        """Send a request and yield the response; the rest of its body is not read after the block.

        Raise `NotAllowed` if the URL or one of its addresses may not be called, `RequestFailed` if
        the host cannot be reached, or its response is not valid.
        """
        destination = check_url(url, self.allowed)
        request = _request_bytes(method, destination, headers or {}, body)
        connection, head = await self._exchange(method, destination, request)
        try:
            yield HttpAnswer(head, connection, self._limits)
        finally:
            self._idle.give_back(destination.origin, connection)

    def close(self) -> None:
        """Close the idle connections."""
        self._idle.close()

    async def _exchange(
        self, method: str, destination: Destination, request: bytes
    ) -> tuple[HttpConnection, AnswerHead]:
        kept = self._idle.take(destination.origin) if method in ("GET", "HEAD") else None
        if kept is not None:
            try:
                return kept, await self._head(kept, method, request)
            except RequestFailed:
                # The host may have closed it just now, or have sent more than its last answer.
                if kept.has_begun_answer:
                    raise
        connection = await self._connect(destination)
        return connection, await self._head(connection, method, request)

    async def _head(self, connection: HttpConnection, method: str, request: bytes) -> AnswerHead:
        try:
            connection.send(method, request)
            async with asyncio.timeout(self._limits.head):
                return await connection.head()
        except TimeoutError:
            connection.abort()
            seconds = self._limits.head
            raise Unreachable(f"it did not answer within {seconds:g} seconds", "answer") from None
        except BaseException:
            connection.abort()
            raise

    async def _connect(self, destination: Destination) -> HttpConnection:
        stage: RequestStage = "dns"
        try:
            async with asyncio.timeout(self._limits.connect):
                addresses = await self._addresses(destination)
                check_addresses(destination, addresses, self.allowed)
                stage = "connect"
                return await self._dial(destination, addresses[:_MAX_ADDRESSES])
        except TimeoutError:
            seconds = self._limits.connect
            raise Unreachable(f"no connection within {seconds:g} seconds", stage) from None

    async def _addresses(self, destination: Destination) -> Sequence[Address]:
        literal = literal_address(destination.host)
        if literal is not None:
            return [literal]
        try:
            return await self._resolve(destination.host, destination.port)
        except (OSError, UnicodeError) as error:
            words = getattr(error, "strerror", None) or type(error).__name__
            raise Unreachable(f"its name cannot be resolved: {words}", "dns") from None

    async def _dial(self, destination: Destination, addresses: Sequence[Address]) -> HttpConnection:
        is_tls = destination.scheme == "https"
        why = Unreachable("no connection", "connect")
        for address in addresses:
            try:
                async with asyncio.timeout(self._limits.connect / min(2, len(addresses))):
                    _, connection = await asyncio.get_running_loop().create_connection(
                        HttpConnection,
                        str(address),
                        destination.port,
                        ssl=self._tls if is_tls else None,
                        server_hostname=destination.host if is_tls else None,
                    )
            except ssl.SSLError as error:
                why = Unreachable(f"TLS failed: {_tls_words(error)}", "tls")
            except TimeoutError:
                why = Unreachable("no connection in time", "connect")
            except OSError as error:
                why = Unreachable(error.strerror or type(error).__name__, "connect")
            else:
                return connection
        raise why

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        if self._given_tls is not None:
            return self._given_tls
        import certifi  # noqa: PLC0415 - an install that asks nobody does without

        context = ssl.create_default_context()  # the machine's roots
        context.load_verify_locations(certifi.where())
        return context


def _tls_words(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return (error.reason or type(error).__name__).lower().replace("_", " ")


def _request_bytes(
    method: str, destination: Destination, headers: Mapping[str, str], body: bytes | None
) -> bytes:
    sent = {
        "Host": destination.authority,
        "User-Agent": "Entrepot",
        "Accept-Encoding": "identity",
        **headers,
    }
    if body is not None:
        sent["Content-Length"] = str(len(body))
    for name, value in sent.items():
        if not value.isascii() or not value.isprintable():
            raise ValueError(f"the header {name} has a character that none may have")
    lines = [f"{method} {destination.target} HTTP/1.1", *(f"{n}: {v}" for n, v in sent.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii") + (body or b"")

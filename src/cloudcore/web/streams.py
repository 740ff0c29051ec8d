"""Request and response bodies that are streamed instead of held in memory.

A handler that reads a stream declares ``takes_stream`` and has a parameter ``stream``. A handler
that sends one returns a `StreamReply`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from litestar.types import Receive, Scope, Send

from cloudcore.errors import InvalidInput, PayloadTooLarge
from cloudcore.serving.asgi import FileRegion, HeldBody, Sink, receive_into
from cloudcore.threads import TRANSFERS
from cloudcore.web.context import RequestContext
from cloudcore.web.request_state import request_state_of

T = TypeVar("T")

_SEND_PARTS: Final = "entrepot.send_parts"

UNIT_BYTES: Final = 256 * 1024
"""Bytes per read of a file, on a server that cannot send from a file."""
_BULK_BYTES: Final = 1 << 20
"""Size from which a body is made in a bulk thread, on a server that has such threads."""


class RequestStream:
    """The unread body of a request. Read it once: by `receive_into` or by iteration."""

    def __init__(
        self, scope: Scope, receive: Receive, context: RequestContext, limit: int | None
    ) -> None:
        headers = dict(reversed([*scope["headers"]]))
        declared = headers.get(b"content-length")
        self.length = None if declared is None else int(declared)
        """The ``Content-Length``, or None."""
        content_type = headers.get(b"content-type")
        self.content_type = None if content_type is None else content_type.decode("latin-1")
        self._scope = scope
        self._receive = receive
        self._context = context
        self._limit = limit
        self._count = 0

    async def receive_into(self, sink: Sink, finish: Callable[[bool], T]) -> T:
        """Move the body to `sink` off the event loop; return ``finish(is_complete)``.

        Exceptions of `sink` are raised here, and then `finish` is not called. See
        `cloudcore.serving.asgi.receive_into`.

        Raise `PayloadTooLarge` if the body is longer than the route's maximum.
        """
        self._begin()

        def counted(part: memoryview) -> None:
            self._add(len(part))
            sink(part)

        return await receive_into(self._scope, self._receive, counted, finish)  # type: ignore[arg-type]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives; read no further while the caller is busy.

        Raise `PayloadTooLarge` if the body is longer than the route's maximum, `InvalidInput` if it
        did not arrive completely.
        """
        self._begin()
        more = True
        while more:
            message = await self._receive()
            if message["type"] != "http.request":
                raise InvalidInput("the body did not arrive whole")
            part, more = message.get("body", b""), message.get("more_body", False)
            self._add(len(part))
            if part:
                yield part

    def _begin(self) -> None:
        """Check that the request was authorized, and that its declared length is allowed."""
        self._context.check_authorized()
        self._check(self.length or 0)

    def _add(self, count: int) -> None:
        self._count += count
        self._check(self._count)

    def _check(self, count: int) -> None:
        if self._limit is not None and count > self._limit:
            raise PayloadTooLarge(f"the body is longer than {self._limit} bytes")


class StreamReply:
    """A response whose body is streamed from a generator, or sent from a file.

    An exception of the generator before its first part becomes an error response. A later one, or a
    file that is too short, aborts the connection. Generator and file are closed at the end, when
    the client disconnects, and for HEAD, which does not read them.
    """

    def __init__(
        self,
        body: AsyncGenerator[bytes, None] | FileRegion,
        *,
        status: int = 200,
        headers: Sequence[tuple[bytes, bytes]] = (),
        length: int | None = None,
        close: Callable[[], Awaitable[None] | None] | None = None,
        bulk: Callable[[int], Iterator[memoryview]] | None = None,
    ) -> None:
        """Make a response; `length` is the size of a generator's body, or None if unknown.

        `close` is called once, in any case. If the body is large and of known size, `bulk` makes
        the same body in a bulk thread, from an offset on.
        """
        self._body = body
        self._close = close
        self._bulk = bulk
        self._length = length
        length = body.count if isinstance(body, FileRegion) else length
        sized = [] if length is None else [(b"content-length", b"%d" % length)]
        self._start: Any = {
            "type": "http.response.start",
            "status": status,
            "headers": [*headers, *sized],
        }

    async def __call__(
        self,
        scope: Scope,
        receive: Receive,  # noqa: ARG002 - the signature of an ASGI application
        send: Send,
    ) -> None:
        """Send the response (ASGI)."""
        try:
            if request_state_of(scope).is_head:
                await send(self._start)
                await send(_part(b""))
            elif isinstance(self._body, FileRegion):
                await send(self._start)
                await _send_file(self._body, scope, send)
            elif self._is_bulk(scope):
                await send(self._start)
                message: Any = {
                    "type": _SEND_PARTS,
                    "parts": self._bulk,
                    "count": self._length,
                }
                await send(message)
            else:
                await self._send_parts(self._body, scope, send)
        finally:
            try:
                if not isinstance(self._body, FileRegion):
                    await self._body.aclose()
            finally:
                closing = None if self._close is None else self._close()
                if closing is not None:
                    await closing

    def _is_bulk(self, scope: Scope) -> bool:
        is_large = self._length is not None and self._length >= _BULK_BYTES
        return self._bulk is not None and is_large and _SEND_PARTS in _extensions(scope)

    async def _send_parts(
        self, parts: AsyncGenerator[bytes, None], scope: Scope, send: Send
    ) -> None:
        """Send what `parts` yields, until the client disconnects.

        Only our own server detects a disconnect while a part is awaited. A client that has shut
        down its sending side may still read; sending the next part shows whether it does.
        """
        held: HeldBody | None = _extensions(scope).get("entrepot.held_body")
        try:
            async with asyncio.timeout(None) as watch:
                if held is not None:
                    held.when_lost(partial(watch.reschedule, 0))
                part = await anext(parts, None)
                await send(self._start)
                while part is not None:
                    await send(_part(part, more=True))
                    part = await anext(parts, None)
                await send(_part(b""))
        except TimeoutError:  # of the timeout here, or raised by `parts`
            if not watch.expired():
                raise
        finally:
            if held is not None:
                held.when_lost(None)


async def _send_file(body: FileRegion, scope: Scope, send: Send) -> None:
    if "http.response.zerocopysend" in _extensions(scope):
        message: Any = body.message()
        await send(message)
        return
    offset, end = body.offset, body.offset + body.count
    while offset < end:
        unit = min(UNIT_BYTES, end - offset)
        part = await TRANSFERS(os.pread, body.descriptor, unit, offset)
        if not part:
            raise RuntimeError("the file is shorter than its announced length")
        offset += len(part)
        await send(_part(part, more=True))
    await send(_part(b""))


def _part(body: bytes, *, more: bool = False) -> Any:  # noqa: ANN401 - an ASGI message
    return {"type": "http.response.body", "body": body, "more_body": more}


def _extensions(scope: Scope) -> dict[str, Any]:
    found: dict[str, Any] = scope.get("extensions") or {}
    return found

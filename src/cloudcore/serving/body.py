"""How an application takes a request body, on our own server and on any other.

Our server holds a body back until the application asks for it and offers, under
``scope["extensions"]["entrepot.held_body"]``, an object that moves the body to a
sink in a bulk thread (`HeldBody`). On a stock ASGI server the same call falls back to
``receive()``, so that handlers are written once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol, TypeVar

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

Sink = Callable[[memoryview], None]
"""Takes the next bytes; the view is only valid during the call. Runs off the event loop."""

P = TypeVar("P")
T = TypeVar("T")

FREE_JOIN_BYTES = 1024 * 1024
"""From this size on, `bytes.join` releases the interpreter's lock while it copies."""
UNIT_BYTES = 256 * 1024
"""Bodies reach a sink in whole units of this size (the last may be shorter): it stays in L2."""


class HeldBody(Protocol):
    """A request body that is still in the socket (ASGI extension ``entrepot.held_body``)."""

    async def receive_into(self, sink: Sink, finish: Callable[[bool], T]) -> T:
        """Move the whole body to `sink`, then call `finish`, both in one bulk thread.

        `finish` gets True when the body arrived whole, False when the client left,
        stalled past the time limit or broke the framing; its result is returned. What `sink` or
        `finish` raise is raised here, and the connection closes after the answer.
        """
        ...

    def when_lost(self, call: Callable[[], None] | None) -> None:
        """Call `call` once the connection is gone, at once if it is; None: nothing any more."""
        ...


async def receive_into(
    scope: Scope, receive: Receive, sink: Sink, finish: Callable[[bool], T]
) -> T:
    """Move the request body to `sink` and return what `finish(complete)` returns."""
    held: HeldBody | None = scope.get("extensions", {}).get("entrepot.held_body")
    if held is not None:
        return await held.receive_into(sink, finish)
    complete = await _receive_messages(receive, sink)
    return await _in_thread(finish, complete)


async def _in_thread(call: Callable[[P], T], argument: P) -> T:
    """Call in a thread; cancellation is raised only when the call has ended.

    The caller closes files that the thread would otherwise go on writing to.
    """
    running = asyncio.ensure_future(asyncio.to_thread(call, argument))
    try:
        return await asyncio.shield(running)
    finally:
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((running,))


async def _receive_messages(receive: Receive, sink: Sink) -> bool:
    """Feed a stock server's messages to `sink` in whole units; True when none is missing."""
    pending = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            await _in_thread(sink, memoryview(pending))
            return False
        pending += message.get("body", b"")
        more = message.get("more_body", False)
        if len(pending) >= UNIT_BYTES or (pending and not more):
            await _in_thread(sink, memoryview(pending))
            pending = bytearray()
        if not more:
            return True


class BodyTooLarge(Exception):
    """The body is longer than its reader allows."""


async def read_body(receive: Receive, limit: int) -> bytes | None:
    """Return the whole body, or None when the client left before its end.

    Raises:
        BodyTooLarge: more than `limit` bytes arrived; the rest is left unread.

    """
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise BodyTooLarge
        parts.append(part)
        if not message.get("more_body", False):
            return await _joined(parts, size)


async def _joined(parts: list[bytes], size: int) -> bytes:
    """Return the parts as one; copying megabytes, which takes milliseconds, in a thread."""
    if len(parts) == 1:
        return parts[0]
    if size < FREE_JOIN_BYTES:
        return b"".join(parts)
    return await asyncio.to_thread(b"".join, parts)

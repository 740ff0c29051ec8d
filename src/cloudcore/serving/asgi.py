"""Receive a request body, on our own server or any other ASGI server.

Our server leaves a body in the socket until the application reads it, or a bulk thread moves it to
a sink (`HeldBody`). On another server, `receive_into` uses ``receive()``. `read_small_body` reads a
small body into memory. The start of a larger body goes back to the connection
(`replay_body_start`), so that `receive_into` moves the body in whole units, without another copy.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple, Protocol, TypeVar

from cloudcore.threads import TRANSFERS

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

Sink = Callable[[memoryview], None]
"""Takes the next bytes; the view is valid only during the call. Runs in a thread."""

T = TypeVar("T")

FREE_JOIN_BYTES = 1024 * 1024
"""Size from which `bytes.join` releases the interpreter's lock while it copies."""
UNIT_BYTES = 256 * 1024
"""Size of the units in which bodies reach a sink (the last may be shorter); it fits in L2."""


class FileRegion(NamedTuple):
    """A range of bytes in an open file, for ``sendfile``."""

    descriptor: int
    offset: int
    count: int  # type: ignore[assignment] # hides tuple.count, as sendfile names it

    def message(self, *, more_body: bool = False) -> Message:
        """Return the message that sends the range (extension ``http.response.zerocopysend``)."""
        return {
            "type": "http.response.zerocopysend",
            "file": self.descriptor,
            "offset": self.offset,
            "count": self.count,
            "more_body": more_body,
        }


def header_values(scope: Mapping[str, Any], name: bytes) -> list[bytes]:
    """Return all values of a request's header, in order."""
    return [value for found, value in scope["headers"] if found == name]


class HeldBody(Protocol):
    """A request body that is still in the socket (ASGI extension ``entrepot.held_body``)."""

    async def receive_into(self, sink: Sink, finish: Callable[[bool], T]) -> T:
        """Move the whole body to `sink`, then call `finish`, both in a bulk thread.

        `finish` gets True if the body arrived completely, False if the client disconnected, stalled
        past the time limit or broke the framing. Return the result of `finish`. Exceptions of
        `sink` or `finish` are raised here, and the connection closes after the response.
        """

    def give_back(self, data: bytes) -> None:
        """Take back `data`, all bytes read so far, and deliver them again before the rest."""

    def when_lost(self, call: Callable[[], None] | None) -> None:
        """Call `call` when the connection is lost, at once if it already is; None cancels that."""


class Body(Protocol):
    """Moves the body of one request: `receive_into` without `scope` and `receive`."""

    async def __call__(self, sink: Sink, finish: Callable[[bool], T], /) -> T:
        """Pass the body to `sink`; return ``finish(is_complete)``."""


async def receive_into(
    scope: Scope, receive: Receive, sink: Sink, finish: Callable[[bool], T]
) -> T:
    """Move the request body to `sink`; return the result of ``finish(is_complete)``.

    See `HeldBody.receive_into`.
    """
    held: HeldBody | None = scope.get("extensions", {}).get("entrepot.held_body")
    if held is not None:
        return await held.receive_into(sink, finish)
    complete = await _receive_messages(receive, sink)
    return await TRANSFERS(finish, complete)


async def _receive_messages(receive: Receive, sink: Sink) -> bool:
    """Pass another server's messages to `sink` in units; return True if the body is complete."""
    pending = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            await TRANSFERS(sink, memoryview(pending))
            return False
        pending += message.get("body", b"")
        more = message.get("more_body", False)
        if len(pending) >= UNIT_BYTES or (pending and not more):
            await TRANSFERS(sink, memoryview(pending))
            pending = bytearray()
        if not more:
            return True


class BodyTooLarge(Exception):
    """The body is longer than the limit."""


async def read_body(receive: Receive, limit: int) -> bytes | None:
    """Return the whole body, or None if the client disconnected before its end.

    Raise `BodyTooLarge` if more than `limit` bytes arrived; the rest is left unread.
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
    """Join the parts; use a thread for megabytes, as copying these takes milliseconds."""
    if len(parts) == 1:
        return parts[0]
    if size < FREE_JOIN_BYTES:
        return b"".join(parts)
    return await TRANSFERS(b"".join, parts)


class BodyStart(NamedTuple):
    """The start of a body that is larger than the limit."""

    data: bytes
    is_complete: bool
    """True if `data` is the whole body."""


async def read_small_body(receive: Receive, limit: int) -> tuple[bytes, bool] | BodyStart:
    """Read a body of at most `limit` bytes; return (body, is_complete), or a larger body's start.

    A body is incomplete if the client has disconnected.
    """
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b"".join(parts), False
        part = message.get("body", b"")
        size += len(part)
        parts.append(part)
        is_complete = not message.get("more_body", False)
        if is_complete or size > limit:
            data = parts[0] if len(parts) == 1 else b"".join(parts)
            return BodyStart(data, is_complete) if size > limit else (data, True)


def replay_body_start(scope: Scope, receive: Receive, begun: BodyStart) -> tuple[Scope, Receive]:
    """Return a scope and a `receive` that yield the whole body again, from its start."""
    extensions = scope.get("extensions", {})
    held: HeldBody | None = extensions.get("entrepot.held_body")
    if held is not None and not begun.is_complete:
        held.give_back(begun.data)
        return scope, receive
    return _received_again(scope, receive, begun.data, is_complete=begun.is_complete)


def replay_body(
    scope: Scope, receive: Receive, data: bytes, *, is_complete: bool
) -> tuple[Scope, Receive]:
    """Return a scope and a `receive` that yield again a body that was already read.

    If the body was incomplete, a disconnect follows it again.
    """
    ended: tuple[Message, ...] = () if is_complete else ({"type": "http.disconnect"},)
    return _received_again(scope, receive, data, *ended, is_complete=is_complete)


def _received_again(
    scope: Scope, receive: Receive, data: bytes, *more: Message, is_complete: bool
) -> tuple[Scope, Receive]:
    """Return a scope without the held body, and a `receive` that yields `data`, then `more`."""
    waiting: list[Message] = [
        {"type": "http.request", "body": data, "more_body": not is_complete},
        *more,
    ]

    async def again() -> Message:
        return waiting.pop(0) if waiting else await receive()

    held, extensions = "entrepot.held_body", scope.get("extensions", {})
    return {**scope, "extensions": {k: v for k, v in extensions.items() if k != held}}, again


async def begin_stream(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Read the first part, so that its errors are raised here; return an iterator over all."""
    first = await anext(parts, b"")

    async def all_parts() -> AsyncIterator[bytes]:
        if first:
            yield first
        async for part in parts:
            yield part

    return all_parts()

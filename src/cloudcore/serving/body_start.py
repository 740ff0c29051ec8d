"""Read the start of a request body, to find out whether it is a small one.

A small body is needed in memory, a large one goes to a file by a bulk thread. Without a declared
length only the bytes tell. What was read of a large body is given back to the connection, so that
`receive_into` moves the whole body in whole units, with no byte copied once more.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from cloudcore.serving.body import Message, Receive, Scope


class Begun(NamedTuple):
    """The start of a body that is larger than the limit."""

    data: bytes
    is_complete: bool
    """It is all of the body."""


class ReturnsBytes(Protocol):
    """A held body to which read bytes can be returned (see `cloudcore.serving.body.HeldBody`)."""

    def give_back(self, data: bytes) -> None:
        """Take back the bytes of the messages read so far; there are more to come."""
        ...


async def read_few(receive: Receive, limit: int) -> tuple[bytes, bool] | Begun:
    """Return a body of at most `limit` bytes, and whether it is complete, or the start of a larger.

    It is incomplete if the client has left.
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
            return Begun(data, is_complete) if size > limit else (data, True)


def begun_again(scope: Scope, receive: Receive, begun: Begun) -> tuple[Scope, Receive]:
    """Return the scope and the messages of a request whose body is received from its start."""
    extensions = scope.get("extensions", {})
    held: ReturnsBytes | None = extensions.get("entrepot.held_body")
    if held is not None and not begun.is_complete:
        held.give_back(begun.data)
        return scope, receive
    waiting: list[Message] = [
        {"type": "http.request", "body": begun.data, "more_body": not begun.is_complete}
    ]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return _without_held_body(scope), again


def whole_again(
    scope: Scope, receive: Receive, data: bytes, *, is_complete: bool
) -> tuple[Scope, Receive]:
    """Return the scope and messages of a request whose body was read, to receive it once more.

    Without its end, the client leaves again.
    """
    waiting: list[Message] = [
        {"type": "http.request", "body": data, "more_body": not is_complete},
        *(() if is_complete else ({"type": "http.disconnect"},)),
    ]

    async def again() -> Message:
        return waiting.pop(0) if waiting else await receive()

    return _without_held_body(scope), again


def _without_held_body(scope: Scope) -> Scope:
    held = "entrepot.held_body"
    extensions = scope.get("extensions", {})
    return {**scope, "extensions": {k: v for k, v in extensions.items() if k != held}}

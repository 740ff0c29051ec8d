"""Receive chunks of one size without a copy, as some clients send them.

``recvmsg`` puts the content of several chunks into a buffer, one behind the other, and what is
between them into another, where it is compared. From where it is not as foreseen, the bytes are
decoded as any others.
"""

from __future__ import annotations

import socket
from typing import NamedTuple

from cloudcore.serving.framing import ChunkedBody, Foreseen


class Received(NamedTuple):
    """What one call received."""

    total: int
    """All bytes, with those between the chunks; 0 at the end of the connection."""
    content: int
    """Bytes of content at the beginning of the buffer, which the framing has counted."""
    rest: bytes
    """The bytes behind them, to be decoded."""


def receive_foreseen(
    sock: socket.socket, body: ChunkedBody, foreseen: Foreseen, room: memoryview, spare: bytearray
) -> Received:
    """Receive content into `room`; `spare` has room for as many bytes again.

    Raises:
        BlockingIOError: there is none.

    """
    framing, size = foreseen
    pieces = _pieces(room, memoryview(spare), body.remaining, len(framing), size)
    count = sock.recvmsg_into(pieces)[0]
    content = min(count, len(pieces[0]))
    remaining, left, chunks = body.remaining - content, count - content, 0
    while left >= len(framing) and pieces[2 * chunks + 1] == framing:
        chunks += 1
        taken = min(left - len(framing), len(pieces[2 * chunks]))
        content += taken
        remaining = size - taken
        left -= len(framing) + taken
    rest = b"".join(pieces[2 * chunks + 1 :])[:left] if left else b""
    body.advance(chunks, remaining)
    return Received(count, content, rest)


def _pieces(
    room: memoryview, between: memoryview, remaining: int, framing_bytes: int, size: int
) -> list[memoryview]:
    """Return where content goes, and between, by turns, what separates it."""
    at = min(remaining, len(room))
    pieces = [room[:at]]
    start = 0
    while at < len(room):
        pieces.append(between[start : start + framing_bytes])
        pieces.append(room[at : at + size])
        start += framing_bytes
        at += size
    return pieces

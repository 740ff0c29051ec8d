"""How the messages of a request body are made of what the event loop reads."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from cloudcore.serving.bodies.framing import BodyFraming, ChunkedBody, CountedBody
from cloudcore.serving.bodies.request_body import PIECE_BYTES, SocketBody


class Connection:
    """The socket's side: it notes whether it reads."""

    peer_closed = False

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.is_reading = True
        self.surplus: bytes | None = None

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def body_ended(self, surplus: bytes) -> None:
        self.surplus = surplus


def held(framing: BodyFraming, raw: bytes = b"") -> tuple[SocketBody, Connection]:
    connection = Connection()
    body = SocketBody(cast("Any", connection), framing, raw, awaits_continue=False)
    return body, connection


async def next_part(body: SocketBody) -> bytes:
    message = await body.next_message()
    assert message["type"] == "http.request"
    part: bytes = message["body"]
    assert type(part) is bytes
    return part


async def test_what_was_read_at_once_is_not_copied() -> None:
    data = bytes(PIECE_BYTES)
    body, connection = held(CountedBody(3 * PIECE_BYTES))
    for _ in range(2):
        body.feed(data)
        assert not connection.is_reading  # the rest waits in the socket
        assert await next_part(body) is data
    body.feed(data + b"next")
    assert await next_part(body) == data
    assert connection.surplus == b"next"
    assert body.received == 3 * PIECE_BYTES


@pytest.mark.parametrize("sizes", [[1, 2, 3], [PIECE_BYTES - 1, 1], [PIECE_BYTES, 7, 7]])
async def test_what_comes_in_pieces_is_one_message(sizes: list[int]) -> None:
    body, connection = held(CountedBody(sum(sizes) + 1))
    pieces = [bytes([at]) * size for at, size in enumerate(sizes, 1)]
    for piece in pieces:
        body.feed(piece)
    assert await next_part(body) == b"".join(pieces)
    assert connection.is_reading == (sum(sizes) < PIECE_BYTES)
    body.feed(b"z")
    assert await next_part(body) == b"z"


async def test_what_came_with_the_head_is_first() -> None:
    body, _ = held(CountedBody(5), b"ab")
    assert await next_part(body) == b"ab"
    body.feed(b"cde")
    assert await next_part(body) == b"cde"


async def test_chunks_are_put_together() -> None:
    body, connection = held(ChunkedBody())
    body.feed(b"1\r\na\r\n2\r\nbc\r\n")
    body.feed(b"1\r\nd\r\n0\r\n\r\n")
    assert await next_part(body) == b"abcd"
    assert connection.surplus == b""


async def test_what_follows_what_came_with_the_head_is_taken_after_it() -> None:
    body, connection = held(CountedBody(5), b"hello")
    body.feed(b"next")
    assert not connection.is_reading  # the rest waits in the socket
    assert await next_part(body) == b"hello"
    assert connection.surplus == b"next"


async def test_a_body_that_is_not_read_ends_where_it_says() -> None:
    body, _ = held(CountedBody(5), b"hello")
    body.feed(b"next")
    assert body.take_raw() == b"hellonext"

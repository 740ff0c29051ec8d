"""Chunks of one size are received where they belong; any others are decoded as ever."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudcore.serving.asgi import UNIT_BYTES
from cloudcore.serving.bodies.bulk import BulkPool
from cloudcore.serving.bodies.framing import LEAST_FORESEEN_BYTES, ChunkedBody
from cloudcore.serving.bodies.receiving import ReceiveJob, receive_foreseen
from cloudcore.serving.limits import ServerLimits

SIZE = 5000
END = b"0\r\n\r\n"


def chunk(number: int, size: int = SIZE, form: bytes = b"%x") -> bytes:
    """Return a chunk whose content tells which one it is."""
    return form % size + b"\r\n" + content(number, size) + b"\r\n"


def content(number: int, size: int = SIZE) -> bytes:
    """Return the content of a chunk."""
    return bytes((number + at) % 251 for at in range(256)) * (size // 256) + b"." * (size % 256)


def within(number: int, size: int = SIZE) -> ChunkedBody:
    """Return a body of which two chunks have come, and the size line of the third."""
    body = ChunkedBody()
    head = chunk(0, size) + chunk(1, size) + b"%x\r\n" % size + content(2, size)[:number]
    assert body.feed(head, len(head), lambda part: None) == len(head)
    return body


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Give two connected sockets, of which the second does not block."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        yield ours, theirs


def test_chunks_of_one_size_are_put_together(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    body, room = within(1000), memoryview(bytearray(3 * SIZE))
    assert body.foreseen is not None
    stream = content(2)[1000:] + b"\r\n" + chunk(3) + chunk(4) + chunk(5)
    ours.sendall(stream)
    found = receive_foreseen(theirs, body, body.foreseen, room, bytearray(UNIT_BYTES))
    assert found.content == len(room)
    assert not found.rest
    assert room == content(2)[1000:] + content(3) + content(4) + content(5)[:1000]
    assert body.remaining == SIZE - 1000


@pytest.mark.parametrize("other", [b"1389", b"01388", b"1388;a", b"0"])
def test_what_is_not_as_foreseen_is_left_to_the_decoder(
    pair: tuple[socket.socket, socket.socket], other: bytes
) -> None:
    ours, theirs = pair
    body = within(SIZE)
    assert body.foreseen is not None
    assert body.foreseen.framing == b"\r\n1388\r\n"
    stream = b"\r\n" + chunk(3) + other + b"\r\nwhatever follows"
    ours.sendall(stream)
    room = memoryview(bytearray(UNIT_BYTES))
    found = receive_foreseen(theirs, body, body.foreseen, room, bytearray(UNIT_BYTES))
    assert (found.total, found.content) == (len(stream), SIZE)
    assert found.rest == b"\r\n" + other + b"\r\nwhatever follows"


def test_small_chunks_are_not_foreseen() -> None:
    assert within(0, LEAST_FORESEEN_BYTES - 1).foreseen is None
    assert within(0, LEAST_FORESEEN_BYTES).foreseen is not None


async def received(pieces: list[bytes]) -> tuple[bytes, bool, bytes]:
    """Return what a job gives to its sink, whether the body was complete, and what is behind."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)

    def send() -> None:
        with ours, suppress(BrokenPipeError, ConnectionResetError):
            for piece in pieces:
                ours.sendall(piece)

    got, pool = bytearray(), BulkPool("test", 1, UNIT_BYTES)
    job = ReceiveJob(
        asyncio.get_running_loop(),
        pool,
        ServerLimits(),
        theirs,
        framing=ChunkedBody(),
        buffered=(b"", b""),
        sink=got.extend,
        finish=lambda complete: complete,
    )
    sender = threading.Thread(target=send)
    sender.start()
    complete = await job.run()
    await asyncio.to_thread(sender.join)
    pool.close()
    return bytes(got), complete, job.surplus


SIZES = st.lists(
    st.one_of(st.just(SIZE), st.just(SIZE), st.sampled_from([1, 4096, 5001, 270_000])),
    max_size=25,
)


@settings(max_examples=40, deadline=None)
@given(SIZES, st.lists(st.integers(1, 900_000), max_size=12), st.booleans())
def test_any_chunks_in_any_pieces_give_their_content(
    sizes: list[int], cuts: list[int], is_cut_off: bool
) -> None:
    stream = b"".join(chunk(number, size) for number, size in enumerate(sizes))
    stream += b"" if is_cut_off else END
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    pieces = [stream[start:stop] for start, stop in itertools.pairwise(places)]
    expected = b"".join(content(number, size) for number, size in enumerate(sizes))
    assert asyncio.run(received(pieces)) == (expected, not is_cut_off, b"")


async def test_what_follows_the_body_is_kept() -> None:
    stream = b"".join(chunk(number) for number in range(5)) + END + b"GET / HTTP/1.1\r\n"
    found, complete, surplus = await received([stream])
    assert found == b"".join(content(number) for number in range(5))
    assert complete
    assert surplus == b"GET / HTTP/1.1\r\n"


@pytest.mark.parametrize("end", [b"x\r\n", b"\n0\r\n\r\n", b"\r\r\n", b"\r\n1388 \r\n"])
async def test_framing_that_is_broken_after_foreseen_chunks_is_refused(end: bytes) -> None:
    stream = b"".join(chunk(number) for number in range(5))
    found, complete, _ = await received([stream[:-2] + end])
    assert not complete
    assert found == b"".join(content(number) for number in range(5))

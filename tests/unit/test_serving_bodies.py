"""Bodies of requests: framing, chunks of one size, and the bulk threads that move them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudcore.serving.asgi import UNIT_BYTES, receive_into
from cloudcore.serving.bodies.bulk import CATCH_UP_BYTES, BulkJob, BulkPool, BulkStep, Scratch
from cloudcore.serving.bodies.framing import (
    LEAST_FORESEEN_BYTES,
    MAX_LINE_BYTES,
    BodyFraming,
    ChunkedBody,
    CountedBody,
    FramingError,
)
from cloudcore.serving.bodies.receiving import ReceiveJob, receive_foreseen
from cloudcore.serving.limits import ServerLimits

EXTENSIONS = st.sampled_from([b"", b";a", b" ; a=b", b';q="x y"', b";a=1;b=2"])
TRAILERS = st.sampled_from([b"", b"Expires: never\r\n", b"a: 1\r\nb:\r\n"])


@st.composite
def chunked_streams(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Draw a valid chunked stream and its content."""
    stream = content = b""
    for chunk in draw(st.lists(st.binary(min_size=1, max_size=300), max_size=6)):
        form = draw(st.sampled_from([b"%x", b"%X", b"000%x"]))
        stream += form % len(chunk) + draw(EXTENSIONS) + b"\r\n" + chunk + b"\r\n"
        content += chunk
    return stream + b"0" + draw(EXTENSIONS) + b"\r\n" + draw(TRAILERS) + b"\r\n", content


def decode(framing: BodyFraming, pieces: list[bytes]) -> tuple[bytes, bytes]:
    """Return the content found in `pieces`, and what is left behind its end."""
    content = bytearray()
    rest = b""
    for piece in pieces:
        used = framing.feed(piece, len(piece), content.extend)
        rest += piece[used:]
    return bytes(content), rest


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    """Cut `data` at the given places (taken modulo its length)."""
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[start:stop] for start, stop in itertools.pairwise(places)]


@given(chunked_streams(), st.lists(st.integers(0, 5000), max_size=20), st.binary(max_size=50))
def test_any_splitting_of_a_chunked_stream_gives_its_content(
    stream: tuple[bytes, bytes], cuts: list[int], surplus: bytes
) -> None:
    encoded, content = stream
    framing = ChunkedBody()
    assert decode(framing, split(encoded + surplus, cuts)) == (content, surplus)
    assert framing.complete


@given(chunked_streams(), st.data())
def test_a_truncated_chunked_stream_is_not_complete(
    stream: tuple[bytes, bytes], data: st.DataObject
) -> None:
    encoded, content = stream
    end = data.draw(st.integers(0, len(encoded) - 1))
    framing = ChunkedBody()
    found, rest = decode(framing, [encoded[:end]])
    assert not framing.complete
    assert content.startswith(found)
    assert not rest


@given(st.binary(max_size=400), st.lists(st.integers(0, 500), max_size=8), st.binary(max_size=9))
def test_any_splitting_of_a_counted_body_gives_its_content(
    content: bytes, cuts: list[int], surplus: bytes
) -> None:
    framing = CountedBody(len(content))
    assert decode(framing, split(content + surplus, cuts)) == (content, surplus)
    assert framing.complete


MALFORMED = {
    "bare LF after the size": b"3\nabc\r\n0\r\n\r\n",
    "bare LF after the content": b"3\r\nabc\n0\r\n\r\n",
    "bare LF at the end": b"0\r\n\n",
    "CR in the size line": b"3\r\r\nabc\r\n0\r\n\r\n",
    "content longer than its size": b"3\r\nabcd\r\n0\r\n\r\n",
    "content shorter than its size": b"4\r\nabc\r\n0\r\n\r\n",
    "no size": b"\r\nabc\r\n",
    "extension without size": b";a\r\n",
    "sign": b"+3\r\nabc\r\n0\r\n\r\n",
    "prefix": b"0x3\r\nabc\r\n0\r\n\r\n",
    "underscore": b"1_0\r\n",
    "leading space": b" 3\r\nabc\r\n0\r\n\r\n",
    "trailing space": b"3 \r\nabc\r\n0\r\n\r\n",
    "not hexadecimal": b"g\r\n",
    "size beyond 60 bits": b"fffffffffffffffff\r\n",
    "control character in an extension": b"3;a\x00\r\nabc\r\n0\r\n\r\n",
    "endless extension": b"3;" + b"a" * MAX_LINE_BYTES,
    "malformed trailer": b"0\r\nno colon\r\n\r\n",
    "folded trailer": b"0\r\na: 1\r\n b\r\n\r\n",
    "endless trailers": b"0\r\n" + b"a: 1\r\n" * 10_000,
    "mostly extensions": (b"1;" + b"a" * 2000 + b"\r\nx\r\n") * 10,
}


@pytest.mark.parametrize("encoded", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize("bytewise", [False, True])
def test_a_malformed_chunked_stream_is_refused(encoded: bytes, bytewise: bool) -> None:
    pieces = [encoded[at : at + 1] for at in range(len(encoded))] if bytewise else [encoded]
    with pytest.raises(FramingError):
        decode(ChunkedBody(), pieces)


def test_small_chunks_without_extensions_are_fine() -> None:
    framing = ChunkedBody()
    content, _ = decode(framing, [b"1\r\nx\r\n"] * 20_000 + [b"0\r\n\r\n"])
    assert (len(content), framing.complete) == (20_000, True)


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


class SlowJob(BulkJob[str]):
    """Holds its thread until it is let go, as a write to a slow disk does."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: BulkPool) -> None:
        super().__init__(loop, pool, ServerLimits(), None)
        self.entered = asyncio.Event()
        self.thread: threading.Thread | None = None
        self.let_go = threading.Event()
        self.left = False

    def advance(self, scratch: Scratch) -> BulkStep:
        self.thread = threading.current_thread()
        self.loop.call_soon_threadsafe(self.entered.set)
        self.let_go.wait()
        self.left = True
        return BulkStep.DONE

    def conclude(self) -> str:
        return "done"


async def cancelled(task: asyncio.Task[object], entered: asyncio.Event) -> None:
    """Cancel `task` while its thread works, twice, and see it wait."""
    await entered.wait()
    for _ in range(2):
        task.cancel()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(asyncio.wait((task,))), 0.05)
        assert not task.done()


async def test_cancellation_waits_for_the_thread() -> None:
    pool = BulkPool("test", 1)
    job = SlowJob(asyncio.get_running_loop(), pool)
    task: asyncio.Task[object] = asyncio.create_task(job.run())
    await cancelled(task, job.entered)
    job.let_go.set()
    await asyncio.wait((task,))
    assert task.cancelled()
    assert job.left
    pool.close()


async def test_cancellation_waits_on_a_stock_server_too() -> None:
    loop = asyncio.get_running_loop()
    entered, let_go = asyncio.Event(), threading.Event()

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"x", "more_body": False}

    def sink(view: memoryview) -> None:
        loop.call_soon_threadsafe(entered.set)
        let_go.wait()

    task: asyncio.Task[object] = asyncio.create_task(
        receive_into({}, receive, sink, lambda complete: complete)
    )
    await cancelled(task, entered)
    let_go.set()
    await asyncio.wait((task,))
    assert task.cancelled()


class CountedJob(BulkJob[str]):
    """Moves `step` bytes in each turn, until it has moved `size`; notes its turns."""

    def __init__(self, pool: BulkPool, name: str, size: int, step: int, turns: list[str]) -> None:
        super().__init__(asyncio.get_running_loop(), pool, ServerLimits(), None)
        self.name, self.size, self.step, self.turns = name, size, step, turns

    def advance(self, scratch: Scratch) -> BulkStep:
        self.turns.append(self.name)
        self.moved += self.step
        return BulkStep.DONE if self.moved >= self.size else BulkStep.YIELD

    def conclude(self) -> str:
        return self.name


async def test_who_has_moved_the_least_comes_first_and_newcomers_starve_nobody() -> None:
    pool, turns = BulkPool("test", 1), list[str]()
    gate = SlowJob(asyncio.get_running_loop(), pool)
    holding = asyncio.create_task(gate.run())
    await gate.entered.wait()
    jobs = [
        CountedJob(pool, "a", 40, 20, turns),
        CountedJob(pool, "b", 40, 10, turns),
    ]
    running = [asyncio.create_task(each.run()) for each in jobs]
    await asyncio.sleep(0)  # both are submitted
    gate.let_go.set()
    await asyncio.gather(holding, *running)
    assert "".join(turns) == "abbabb"

    late = CountedJob(pool, "c", 5, 5, turns)
    assert await late.run() == "c"
    assert late.turn == 30 + 5  # it began where the others were, not before them
    pool.close()


async def test_who_waited_for_its_client_catches_up_only_so_far() -> None:
    pool, turns = BulkPool("test", 1), list[str]()
    waited = CountedJob(pool, "w", 1, 1, turns)
    waited.turn = 0
    far = CountedJob(pool, "f", CATCH_UP_BYTES * 5, CATCH_UP_BYTES, turns)
    await far.run()
    await waited.run()
    assert waited.turn == 3 * CATCH_UP_BYTES + 1  # behind the last turn, which began at 4
    pool.close()


async def test_a_thread_that_could_not_be_started_is_started_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool = BulkPool("test", 1)
    waits = CountedJob(pool, "waits", 1, 1, [])
    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", refuse)
        running = asyncio.create_task(waits.run())
        await asyncio.sleep(0)
    assert await CountedJob(pool, "next", 1, 1, []).run() == "next"
    assert await running == "waits"
    pool.close()


async def test_threads_that_nobody_needs_end() -> None:
    pool = BulkPool("test", 3, idle_seconds=0.05)
    jobs = [SlowJob(asyncio.get_running_loop(), pool) for _ in range(3)]
    running = [asyncio.create_task(job.run()) for job in jobs]
    for job in jobs:
        await job.entered.wait()
        job.let_go.set()
    assert await asyncio.gather(*running) == ["done"] * 3
    for job in jobs:
        assert job.thread is not None
        job.thread.join(60)
        assert not job.thread.is_alive()
    assert await CountedJob(pool, "another", 1, 1, []).run() == "another"
    pool.close()


async def test_memory_is_given_back_once_when_several_threads_have_ended() -> None:
    given, ended = list[int](), threading.Event()
    loop = asyncio.get_running_loop()

    def give_back() -> None:
        given.append(sum(job.thread is not None and job.thread.is_alive() for job in jobs))
        ended.set()

    pool = BulkPool("test", 3, idle_seconds=0.05, on_fewer=give_back)
    jobs = [SlowJob(loop, pool) for _ in range(3)]
    running = [asyncio.create_task(job.run()) for job in jobs]
    for job in jobs:
        await job.entered.wait()
        job.let_go.set()
    await asyncio.gather(*running)
    assert await asyncio.to_thread(ended.wait, 60)
    for job in jobs:
        assert job.thread is not None
        job.thread.join(60)
    assert len(given) == 1
    pool.close()


async def test_no_job_waits_for_a_thread_that_ends() -> None:
    pool = BulkPool("test", 2, idle_seconds=0.0002)
    for number in range(300):
        names = [f"{number} {each}" for each in range(1 + number % 4)]
        jobs = [CountedJob(pool, name, 2, 1, []) for name in names]
        async with asyncio.timeout(60):
            assert await asyncio.gather(*(job.run() for job in jobs)) == names
    pool.close()


CHILD = """
import ctypes, re
from cloudcore.serving.limits import give_back_unused

def anonymous():
    with open("/proc/self/status") as status:
        return int(re.search(r"RssAnon:\\s+(\\d+)", status.read())[1])

ctypes.CDLL(None).mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD: no block is mapped by itself
blocks = [bytearray(b"x" * (1 << 20)) for _ in range(65)]
pin = blocks.pop()  # above them, so that free(3) cannot lower the end of the heap
del blocks
before = anonymous()
give_back_unused()
print(before - anonymous())
"""


def test_what_malloc_holds_free_is_given_back() -> None:
    given = subprocess.run(
        [sys.executable, "-c", CHILD], capture_output=True, text=True, check=True, timeout=60
    )
    assert int(given.stdout) > 32 * 1024, "KiB of 64 MiB"

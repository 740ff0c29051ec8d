"""Large bodies: whole units in, whole files out, byte for byte, also for slow clients."""

from __future__ import annotations

import hashlib
import http.client
import os
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudcore.serving.asgi import UNIT_BYTES
from cloudcore.serving.limits import KIB, MIB, ServerLimits
from cloudcore.serving.tls.stream import MOST_PIECE_BYTES
from tests.integration.serving_app import RunningServer, SampleApplication, serving
from tests.waiting import until

SIZE = 64 * MIB
LIMITS = ServerLimits(linger_seconds=1, sweep_seconds=0.1, receive_threads=2, send_threads=2)


@pytest.fixture(scope="module")
def content() -> bytes:
    """Return 64 MiB that do not repeat."""
    return random.Random(1).randbytes(SIZE)


@pytest.fixture(scope="module")
def file(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bulk") / "content"
    path.write_bytes(content)
    return path


@pytest.fixture(params=["uvloop", "uvloop+tls"])
def server(request: pytest.FixtureRequest, file: Path) -> Iterator[RunningServer]:
    with serving(SampleApplication(file), LIMITS, loop=request.param) as running:
        yield running


def put(target: str, fields: str) -> bytes:
    return f"PUT {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n".encode()


def get(target: str, method: str = "GET") -> bytes:
    return f"{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode()


def chunked(content: bytes, seed: int) -> Iterator[bytes]:
    """Yield `content` in the chunked coding, in chunks of many sizes."""
    sizes = random.Random(seed)
    at = 0
    while at < len(content):
        size = sizes.choice((1, 100, 32 * KIB, 100_000, 3 * MIB))
        part = content[at : at + size]
        yield b"%x\r\n%s\r\n" % (len(part), part)
        at += size
    yield b"0\r\n\r\n"


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_arrives_in_whole_units(
    server: RunningServer, content: bytes, is_chunked: bool
) -> None:
    fields = "Transfer-Encoding: chunked\r\n" if is_chunked else f"Content-Length: {SIZE}\r\n"
    with server.connect() as client:
        client.send(put("/v2/sink", fields))
        for piece in chunked(content, 2) if is_chunked else (content,):
            client.send(piece)
        response, body = client.response()
        assert response.status == 201
        digest, thread = body.decode().split()
        assert digest == hashlib.sha256(content).hexdigest()
        assert thread.startswith("bulk-receive")
        assert server.app.units == [UNIT_BYTES] * (SIZE // UNIT_BYTES)
        assert client.ask(get("/v2/b"))[1] == b"/v2/b?"


def test_bodies_around_a_unit(server: RunningServer, content: bytes) -> None:
    with server.connect() as client:
        for size in (0, 1, 5, UNIT_BYTES - 1, UNIT_BYTES, UNIT_BYTES + 1):
            server.app.units.clear()
            body = content[:size]
            for _ in range(2):
                response, answer = client.ask(put("/v2/sink", f"Content-Length: {size}\r\n") + body)
                assert response.status == 201
                assert answer.decode().split()[0] == hashlib.sha256(body).hexdigest()
            assert sum(server.app.units) == 2 * size


def test_many_slow_senders_share_two_threads(server: RunningServer, content: bytes) -> None:
    body = content[: UNIT_BYTES + 1000]
    clients = [server.connect() for _ in range(12)]
    for client in clients:
        client.send(put("/v2/sink", f"Content-Length: {len(body)}\r\n"))
    for at in range(0, len(body), 50_000):
        for client in clients:
            client.send(body[at : at + 50_000])
    for client in clients:
        response, answer = client.response()
        assert response.status == 201
        assert answer.decode().split()[0] == hashlib.sha256(body).hexdigest()
        client.close()
    assert sorted(set(server.app.units)) == [1000, UNIT_BYTES]


FRAMINGS = pytest.mark.parametrize(
    "fields", ["Content-Length: 1000\r\n", "Transfer-Encoding: chunked\r\n"]
)


@FRAMINGS
def test_a_truncated_body_is_not_complete(server: RunningServer, fields: str) -> None:
    with server.connect() as client:
        client.send(put("/v2/sink", fields) + b"3\r\nabc\r\n")
        client.end_sending()
        response, _ = client.response()
        assert (response.status, response.headers["connection"]) == (400, "close")
        assert client.is_closed()
    assert server.app.finished == [False]


@FRAMINGS
def test_a_client_that_leaves_ends_its_bulk_job(server: RunningServer, fields: str) -> None:
    with server.connect() as client:
        client.send(put("/v2/sink", fields) + b"3\r\nabc\r\n")
    assert server.app.returned.wait(30)
    assert server.app.finished == [False]


def test_broken_framing_is_answered_by_the_server_if_not_by_the_application(
    server: RunningServer,
) -> None:
    with server.connect() as client:
        client.send(put("/v2/ignored", "Transfer-Encoding: chunked\r\n") + b"3\r\nabcde\r\n")
        response, body = client.response()
        assert response.status == 400
        assert b"longer than its size" in body
        assert client.is_closed()
    assert server.app.finished == [False]


def test_what_a_sink_raises_is_raised_in_the_application(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(put("/v2/badsink", f"Content-Length: {SIZE}\r\n") + b"x" * UNIT_BYTES)
        response, body = client.response()
        assert (response.status, body) == (507, b"'full'")
        assert response.headers["connection"] == "close"
        assert client.is_closed()
    assert server.app.finished == []


PIECES = [
    (0, 0),
    (0, 1),
    (7, 64 * KIB),
    (1, 64 * KIB + 1),
    (5, 256 * KIB),
    (3, MIB),
    (11, MIB + 1),
    (SIZE - 3 * MIB, 3 * MIB),
    (0, SIZE),
]


@pytest.mark.parametrize("cached", [True, False])
def test_a_piece_of_a_file_arrives_whole(
    server: RunningServer, content: bytes, file: Path, cached: bool
) -> None:
    with server.connect() as client:
        for offset, count in PIECES:
            if not cached:
                with file.open("rb") as opened:
                    os.fsync(opened.fileno())
                    os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            response, body = client.ask(get(f"/v2/file?offset={offset}&count={count}"))
            assert response.status == 200
            assert body == content[offset : offset + count]
            assert client.ask(get("/v2/b"))[1] == b"/v2/b?"


def test_a_file_can_be_chunks_or_all_of_a_body(server: RunningServer, content: bytes) -> None:
    with server.connect() as client:
        for count in (10, 100_000, 2 * MIB):
            _, body = client.ask(get(f"/v2/file?count={count}&chunked=1"))
            assert body == content[:count] + b"the end"
            assert client.ask(get("/v2/b"))[1] == b"/v2/b?"
        for request, sent in ((get("/v2/file"), content), (get("/v2/file", "HEAD"), b"")):
            response, body = client.ask(request)
            assert (response.headers["content-length"], body) == (str(SIZE), sent)
            assert client.ask(get("/v2/b"))[1] == b"/v2/b?"


def test_a_file_that_is_too_short_ends_the_connection(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL")
    with server.connect() as client:
        client.send(get(f"/v2/file?offset={SIZE - 10}&count=20"))
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            client.response()


@pytest.mark.parametrize("count", [MIB, SIZE])
def test_slow_readers_cost_no_thread(server: RunningServer, content: bytes, count: int) -> None:
    slow = [server.connect() for _ in range(20)]
    for client in slow:
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * KIB)
        client.send(get(f"/v2/file?count={count}"))
        assert client.sock.recv(1)
    with server.connect() as client:
        for _ in range(20):
            assert client.ask(get("/v2/b"))[1] == b"/v2/b?"
        _, body = client.ask(get(f"/v2/file?count={count}"))
        assert body == content[:count]
    names = {thread.name for thread in threading.enumerate()}
    assert "bulk-send-3" not in names
    for client in slow:
        client.close()
    with server.connect() as client:
        assert client.ask(get(f"/v2/file?count={count}"))[1] == content[:count]


def test_reading_stops_when_the_client_leaves(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(get("/v2/file"))
        assert client.sock.recv(1000)
    assert server.app.returned.wait(30)
    assert not server.worker.senders.jobs


@pytest.mark.parametrize("target", ["file", "stream?2000"])
def test_what_left_is_counted_when_the_client_leaves(server: RunningServer, target: str) -> None:
    taken = 3 * MIB
    with server.connect() as client:
        client.send(get(f"/v2/{target}"))
        assert client.response_head().status == 200
        for _ in range(taken // (64 * KIB)):
            assert client.read(64 * KIB)
    until(lambda: len(server.records) == 1)
    (record,) = server.records
    assert (record.status, record.reason) == (200, "the client left")
    # Over TLS a piece counts once all of it is sent: see `TlsStream.send`.
    assert taken - (MOST_PIECE_BYTES if server.trust else 0) <= record.sent < SIZE

"""Bodies that are made in bulk threads as they are sent, also for slow clients and lost ones."""

from __future__ import annotations

import http.client
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudcore.serving.bodies.sending import KEPT_BYTES
from cloudcore.serving.limits import MIB, ServerLimits
from tests.integration.serving_app import RunningServer, SampleApplication, serving
from tests.waiting import until

SIZE = 24 * MIB
LIMITS = ServerLimits(
    linger_seconds=1,
    sweep_seconds=0.1,
    send_threads=2,
    parked_bytes=2 * KEPT_BYTES,
    bulk_patience_seconds=0.001,
)


@pytest.fixture(scope="module")
def content() -> bytes:
    return random.Random(4).randbytes(SIZE)


@pytest.fixture(scope="module")
def file(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("parts") / "content"
    path.write_bytes(content)
    return path


@pytest.fixture(params=["uvloop", "uvloop+tls"])
def server(request: pytest.FixtureRequest, file: Path) -> Iterator[RunningServer]:
    with serving(SampleApplication(file), LIMITS, loop=request.param) as running:
        yield running


def get(target: str, method: str = "GET") -> bytes:
    return f"{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode()


def test_a_body_in_parts_arrives_whole(server: RunningServer, content: bytes) -> None:
    with server.connect() as client:
        for count, unit in ((0, 1), (1, 1), (100_000, 1000), (SIZE - 7, MIB), (SIZE, 3 * MIB)):
            server.app.threads.clear()
            response, body = client.ask(get(f"/v2/parts?count={count}&unit={unit}"))
            assert (response.status, body) == (200, content[:count])
            assert client.ask(get("/v2/b"))[1] == b"/v2/b?"
            assert server.app.threads == ({"bulk-send"} if count else set())
        for begun in (1, 8 * MIB, SIZE):  # of which a part was sent before
            response, body = client.ask(get(f"/v2/parts?begun={begun}"))
            assert (response.status, body) == (200, content)
            assert client.ask(get("/v2/b"))[1] == b"/v2/b?"


def test_head_makes_nothing(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(get("/v2/parts?count=9", "HEAD"))
        head = client.response_head()
        assert (head.status, head.headers["content-length"]) == (200, "9")
        assert client.ask(get("/v2/b"))[1] == b"/v2/b?"
    assert server.app.begun == []


def test_a_part_that_cannot_be_made_ends_the_connection(
    server: RunningServer, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL")
    with server.connect() as client:
        client.send(get(f"/v2/parts?count={4 * MIB}&fails={2 * MIB}"))
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)) as raised:
            client.response()
    if isinstance(raised.value, http.client.IncompleteRead):
        assert content.startswith(raised.value.partial)
        assert len(raised.value.partial) <= 2 * MIB


def test_slow_readers_cost_no_thread_and_bounded_memory(
    server: RunningServer, content: bytes
) -> None:
    slow = [server.connect() for _ in range(6)]
    for client in slow:
        client.send(get("/v2/parts"))
        assert client.response_head().status == 200
    with server.connect() as client:
        assert client.ask(get("/v2/parts"))[1] == content
    until(lambda: sum(job.parked for job in tuple(server.worker.senders.jobs)) == len(slow))
    assert server.worker.senders.keep(0) <= LIMITS.parked_bytes
    names = {thread.name for thread in threading.enumerate()}
    assert "bulk-send-3" not in names
    for client in slow:
        assert client.read(SIZE) == content
        client.close()
    assert any(server.app.begun), "no body was made again from its middle"
    assert server.worker.senders.keep(0) == 0


def test_making_stops_when_the_client_leaves(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(get("/v2/parts"))
        assert client.sock.recv(1000)
    assert server.app.returned.wait(30)
    assert not server.worker.senders.jobs
    assert server.worker.senders.keep(0) == 0

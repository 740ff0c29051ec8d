"""A limit of the whole request: it ends what goes on longer, however steadily, and only that.

The time limits are the real ones; the clock is the test's.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudcore.serving.asgi import Receive, Scope, Send, receive_into
from cloudcore.serving.limits import MIB, ServerLimits
from tests.integration.serving_app import (
    RunningServer,
    SampleApplication,
    serving,
    wait_until,
)
from tests.integration.slow_clients import (
    BODIES,
    CHUNKED,
    COUNTED,
    FILE_BYTES,
    NEVER,
    arrived,
    begin,
    moved,
    read_until,
    send,
    server_has_body,
    slow_reader,
    sparse_file,
)

HOUR = 3600
GRACE = 10
LIMITS = ServerLimits(sweep_seconds=NEVER, request_seconds=HOUR)
FAULT = "the request took longer than 3600 s"
ENDLESS = "Content-Length: 99999999\r\n"


class BusyApplication(SampleApplication):
    """Answers late: what it does meanwhile is the test's to end."""

    def __init__(self, file: Path | None = None) -> None:
        super().__init__(file)
        self.may_finish = threading.Event()

    async def get_finishing(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take the body, and work on it in the bulk thread."""

        def finish(complete: bool) -> None:
            self.started.set()
            self.may_finish.wait(60)
            self.finished.append(complete)

        await receive_into(scope, receive, lambda _: None, finish)

    async def get_deaf(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read nothing of the body, and answer nothing while there is a client."""
        lost = asyncio.Event()
        scope["extensions"]["entrepot.held_body"].when_lost(lost.set)
        self.started.set()
        await lost.wait()
        self.disconnected.set()

    async def get_begun(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Begin an answer, and send no more of it while there is a client."""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        await self.get_deaf(scope, receive, send)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sparse_file(tmp_path_factory.mktemp("file"))


@pytest.fixture
def app(file: Path) -> Iterator[BusyApplication]:
    busy = BusyApplication(file)
    yield busy
    busy.may_finish.set()


@pytest.fixture(params=["uvloop", "asyncio"])
def server(request: pytest.FixtureRequest, app: BusyApplication) -> Iterator[RunningServer]:
    with serving(app, LIMITS, loop=request.param) as running:
        yield running


def is_asked_again(server: RunningServer) -> bool:
    """Tell whether the application waits for more than the body."""
    return any(each.cycle is not None and each.cycle._gone for each in server.connections)


@BODIES
def test_a_body_that_keeps_coming_is_ended_with_408(
    server: RunningServer, target: str, fields: str
) -> None:
    """What came before is handed over."""
    piece = b"x" * 10_000
    with server.connect() as client:
        begin(client, target, fields if fields == CHUNKED else ENDLESS)
        arrived(server)
        now = time.monotonic()
        for step in range(60):
            send(server, client, piece, fields)
            server.sweep(now + 59 * step)
        assert server_has_body(server)
        server.sweep(now + HOUR + 1)
        response, body = client.response()
        assert (response.status, response.headers["connection"]) == (408, "close")
        assert FAULT.encode() in body
        assert client.is_closed()
    wait_until(lambda: len(server.records) == 1)
    (record,) = server.records
    assert (record.status, record.received, record.reason) == (408, 600_000, FAULT)
    if target == "sink":
        assert (server.app.finished, sum(server.app.units)) == ([False], 600_000)


def test_a_body_that_comes_fast_is_ended_with_408(server: RunningServer) -> None:
    """Whose thread never waits for the client."""
    with server.connect() as client:
        begin(client, "sink", f"Content-Length: {1 << 50}\r\n")
        is_over = threading.Event()

        def push() -> None:
            piece = b"x" * MIB
            while not is_over.is_set():
                try:
                    client.send(piece)
                except OSError:
                    return

        pushing = threading.Thread(target=push, daemon=True)
        pushing.start()
        wait_until(lambda: sum(server.app.units) > 64 * MIB)
        server.sweep(time.monotonic() + HOUR + 1)
        assert client.response()[0].status == 408
        is_over.set()
        pushing.join(60)
        server.sweep(time.monotonic() + HOUR)  # it reads no more of what the client has sent
    assert server.app.finished == [False]


@pytest.mark.parametrize("target", ["stream?2000", f"file?count={FILE_BYTES}"])
def test_a_response_that_is_read_steadily_is_ended(server: RunningServer, target: str) -> None:
    with slow_reader(server, target) as client:
        now = time.monotonic()
        for step in range(61):
            read_until(server, client, moved(server))
            server.sweep(now + 59 * step)
            assert server.server_connections == 1
        server.sweep(now + HOUR + 1)
        wait_until(lambda: len(server.records) == 1)
    (record,) = server.records
    assert record.reason == FAULT
    assert record.sent > 0


@pytest.mark.parametrize(
    ("plane", "words"), [("v1", b'"code":"SERVICE_UNAVAILABLE"'), ("v2", b'"code":"UNKNOWN"')]
)
@pytest.mark.parametrize("body", ["", "abc"])
def test_an_application_that_does_not_answer_is_ended_with_503(
    server: RunningServer, plane: str, words: bytes, body: str
) -> None:
    """In the plane's own shape, and the application learns that nobody waits for it."""
    with server.connect() as client:
        head = (
            f"PUT /{plane}/watch HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        )
        client.send(head.encode())
        wait_until(lambda: is_asked_again(server))
        now = time.monotonic()
        server.sweep(now + HOUR - 60)
        assert not server.app.disconnected.is_set()
        server.sweep(now + HOUR + 1)
        response, content = client.response("PUT")
        assert (response.status, response.headers["connection"]) == (503, "close")
        assert words in content
        assert FAULT.encode() in content
        assert client.is_closed()
        assert server.app.disconnected.wait(60)
    assert [(record.status, record.reason) for record in server.records] == [(503, FAULT)]


def test_an_answer_that_has_begun_is_cut(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(b"GET /v2/begun HTTP/1.1\r\nHost: a\r\n\r\n")
        assert server.app.started.wait(60)
        server.sweep(time.monotonic() + HOUR + 1)
        assert client.rest().endswith(b"begun\r\n")
        assert server.app.disconnected.wait(60)
    wait_until(lambda: len(server.records) == 1)
    assert [(record.status, record.reason) for record in server.records] == [(200, FAULT)]


def test_a_client_whose_bytes_are_still_worked_on_is_disconnected(
    server: RunningServer, app: BusyApplication
) -> None:
    """The thread has the socket, so that no answer can be written to it; the work is not cut."""
    with server.connect() as client:
        client.send(b"PUT /v2/finishing HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
        assert app.started.wait(60)
        server.sweep(time.monotonic() + HOUR + 1)
        assert client.is_closed()
        assert app.finished == []
        app.may_finish.set()
        wait_until(lambda: len(server.records) == 1)
    assert app.finished == [True]
    assert server.records[0].reason == FAULT


def test_an_application_that_does_not_read_the_rest_has_some_seconds_to_answer(
    server: RunningServer,
) -> None:
    with server.connect() as client:
        begin(client, "deaf", COUNTED)
        assert server.app.started.wait(60)
        now = time.monotonic()
        server.sweep(now + HOUR + 1)
        server.sweep(now + HOUR + GRACE - 1)
        assert not server.app.disconnected.is_set()
        server.sweep(now + HOUR + GRACE + 1)
        assert client.response()[0].status == 503
        assert client.is_closed()
        assert server.app.disconnected.wait(60)
    assert [(record.status, record.reason) for record in server.records] == [(503, FAULT)]


def test_without_the_limit_a_request_takes_as_long_as_it_takes(app: BusyApplication) -> None:
    with (
        serving(app, ServerLimits(sweep_seconds=NEVER)) as server,
        server.connect() as client,
    ):
        client.send(b"GET /v2/watch HTTP/1.1\r\nHost: a\r\n\r\n")
        wait_until(lambda: is_asked_again(server))
        server.sweep(time.monotonic() + 1000 * HOUR)
        assert server.server_connections == 1
        assert not app.disconnected.is_set()

"""Slow clients: left alone while they move, cut where they do not, and ended at a request's limit.

The time limits are the real ones; the clock is the test's.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import httpx
import pytest

from cloudcore.serving.asgi import Receive, Scope, Send, receive_into
from cloudcore.serving.limits import MIB, ServerLimits
from registry.composition.dev import create_dev_app
from registry.composition.main import prepare
from registry.settings.settings import Settings
from tests.databases import planted
from tests.integration.serving_app import (
    Client,
    RunningServer,
    SampleApplication,
    serving,
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
from tests.waiting import until

LIMITS = ServerLimits(sweep_seconds=NEVER)
CROWDED = ServerLimits(sweep_seconds=NEVER, crowd=0)
IDLE = "no byte of the request body came in 60 s"
ENDLESS = "Content-Length: 99999999\r\n"
RESPONSES = pytest.mark.parametrize("target", ["stream?2000", f"file?count={FILE_BYTES}"])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sparse_file(tmp_path_factory.mktemp("file"))


@pytest.fixture
def server(file: Path) -> Iterator[RunningServer]:
    with serving(SampleApplication(file), LIMITS) as running:
        yield running


@pytest.fixture
def crowded(file: Path) -> Iterator[RunningServer]:
    """Run a server for which one connection is a crowd."""
    with serving(SampleApplication(file), CROWDED) as running:
        yield running


@BODIES
def test_a_body_that_crawls_is_taken(server: RunningServer, target: str, fields: str) -> None:
    """At 10 kB in 50 s for an hour: far below any floor, and never idle."""
    piece = b"x" * 10_000
    with server.connect() as client:
        begin(client, target, fields if fields == CHUNKED else "Content-Length: 720000\r\n")
        arrived(server)
        now = time.monotonic()
        server.sweep(now)
        for step in range(1, 72):
            send(server, client, piece, fields)
            server.sweep(now + 50 * step)
        client.send(piece if fields == COUNTED else b"2710\r\n%s\r\n0\r\n\r\n" % piece)
        response, _ = client.response()
    assert response.status == (200 if target == "echo" else 201)


def check_cut(
    server: RunningServer, client: Client, reason: str, received: int, target: str
) -> None:
    """Check the answer and the record of a body that was cut; what came was handed over."""
    response, body = client.response()
    assert (response.status, response.headers["connection"]) == (408, "close")
    assert reason.encode() in body
    assert client.is_closed()
    until(lambda: len(server.records) == 1)
    (record,) = server.records
    assert (record.status, record.received, record.reason) == (408, received, reason)
    if target == "sink":
        assert (server.app.finished, sum(server.app.units)) == ([False], received)


@BODIES
def test_a_body_of_which_no_byte_comes_is_cut_with_408(
    server: RunningServer, target: str, fields: str
) -> None:
    """What came before is handed over, also what was still in the socket."""
    with server.connect() as client:
        begin(client, target, fields)
        send(server, client, b"x" * 1000, fields)
        now = time.monotonic()
        server.sweep(now)
        server.sweep(now + 59)
        assert server_has_body(server)
        server.sweep(now + 61)
        check_cut(server, client, IDLE, 1000, target)


@BODIES
def test_a_body_that_crawls_is_cut_where_connections_are_scarce(
    crowded: RunningServer, target: str, fields: str
) -> None:
    with crowded.connect() as client:
        begin(client, target, fields)
        send(crowded, client, b"x", fields)
        now = time.monotonic()
        crowded.sweep(now)
        for seconds in (20, 40, 59):
            send(crowded, client, b"x" * 1000, fields)
            crowded.sweep(now + seconds)
        assert server_has_body(crowded)
        crowded.sweep(now + 61)
        response, body = client.response()
    assert response.status == 408
    assert b"while connections are scarce" in body


def test_a_body_above_the_floor_is_not_cut_where_connections_are_scarce(
    crowded: RunningServer,
) -> None:
    with crowded.connect() as client:
        begin(client, "sink", f"Content-Length: {4 * MIB}\r\n")
        arrived(crowded)
        now = time.monotonic()
        crowded.sweep(now)
        for step in range(1, 4):
            send(crowded, client, b"x" * MIB, COUNTED)
            crowded.sweep(now + 59 * step)
        client.send(b"x" * MIB)
        assert client.response()[0].status == 201


def test_a_push_that_is_cut_goes_on_where_it_stopped(tmp_path: Path) -> None:
    settings = Settings(data=planted(tmp_path / "data"))
    prepare(settings)
    content = b"x" * 2000
    with (
        serving(limits=LIMITS, application=create_dev_app(settings)) as server,
        httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as other,
    ):
        upload = other.post("/v2/dev/slow/blobs/uploads/").headers["location"]
        other.close()
        until(lambda: not server.server_connections)
        with server.connect() as client:
            head = f"PATCH {upload} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000\r\n\r\n"
            client.send(head.encode())
            send(server, client, content[:1200], COUNTED)
            now = time.monotonic()
            server.sweep(now)
            server.sweep(now + 61)
            response, body = client.response()
        assert response.status == 408
        assert "no byte of the request body came" in json.loads(body)["errors"][0]["message"]
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as again:
            assert again.get(upload).headers["range"] == "0-1199"
            digest = hashlib.sha256(content).hexdigest()
            ended = again.put(f"{upload}?digest=sha256:{digest}", content=content[1200:])
            assert ended.status_code == 201


def test_slow_bodies_hold_no_thread(server: RunningServer) -> None:
    """Every job lies with the event loop until its socket has what it waits for."""
    clients = [server.connect() for _ in range(100)]
    for client in clients:
        begin(client, "sink", COUNTED)
        client.send(b"x")
    pool = server.worker.receivers
    until(lambda: len(pool.jobs) == 100 and all(job.parked for job in tuple(pool.jobs)))
    names = [thread.name for thread in threading.enumerate()]
    assert sum(name.startswith("bulk-receive") for name in names) <= LIMITS.receive_threads
    assert not pool.contended
    for client in clients:
        client.close()


@RESPONSES
def test_a_response_that_is_read_slowly_is_not_cut(server: RunningServer, target: str) -> None:
    """Also where the kernel would wait for more room before it takes another byte from us."""
    with slow_reader(server, target) as client:
        now = time.monotonic()
        server.sweep(now)
        for step in range(1, 20):
            before = moved(server)
            read_until(server, client, before)
            server.sweep(now + 50 * step)
            assert server.server_connections == 1


@RESPONSES
def test_a_response_of_which_no_byte_is_taken_is_cut(server: RunningServer, target: str) -> None:
    with slow_reader(server, target) as client:
        now = time.monotonic()
        server.sweep(now)
        server.sweep(now + 59)
        assert server.server_connections == 1
        seconds = count(61, 61)  # the kernels may pass a little more on at first

        def is_cut() -> bool:
            if server.server_connections:
                server.sweep(now + next(seconds))
            return len(server.records) == 1

        until(is_cut)
        taken = len(client.rest())
    (record,) = server.records
    assert record.reason == "no byte of the response was taken in 60 s"
    assert 0 < record.sent <= taken + 1


@RESPONSES
def test_a_response_read_slowly_is_cut_where_connections_are_scarce(
    crowded: RunningServer, target: str
) -> None:
    with slow_reader(crowded, target) as client:
        now = time.monotonic()
        crowded.sweep(now)
        for seconds in (20, 40, 59):
            read_until(crowded, client, moved(crowded))
            crowded.sweep(now + seconds)
        assert crowded.server_connections == 1
        crowded.sweep(now + 61)
        until(lambda: len(crowded.records) == 1)
    assert "while connections are scarce" in crowded.records[0].reason


HOUR = 3600
GRACE = 10
HURRIED = ServerLimits(sweep_seconds=NEVER, request_seconds=HOUR)
FAULT = "the request took longer than 3600 s"


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


@pytest.fixture
def app(file: Path) -> Iterator[BusyApplication]:
    busy = BusyApplication(file)
    yield busy
    busy.may_finish.set()


@pytest.fixture
def hurried(app: BusyApplication) -> Iterator[RunningServer]:
    """Run a server whose requests may take an hour."""
    with serving(app, HURRIED) as running:
        yield running


def is_asked_again(server: RunningServer) -> bool:
    """Tell whether the application waits for more than the body."""
    return any(each.cycle is not None and each.cycle._gone for each in server.connections)


@BODIES
def test_a_body_that_keeps_coming_is_ended_with_408(
    hurried: RunningServer, target: str, fields: str
) -> None:
    """What came before is handed over."""
    piece = b"x" * 10_000
    with hurried.connect() as client:
        begin(client, target, fields if fields == CHUNKED else ENDLESS)
        arrived(hurried)
        now = time.monotonic()
        for step in range(60):
            send(hurried, client, piece, fields)
            hurried.sweep(now + 59 * step)
        assert server_has_body(hurried)
        hurried.sweep(now + HOUR + 1)
        check_cut(hurried, client, FAULT, 600_000, target)


def test_a_body_that_comes_fast_is_ended_with_408(hurried: RunningServer) -> None:
    """Whose thread never waits for the client."""
    with hurried.connect() as client:
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
        until(lambda: sum(hurried.app.units) > 16 * MIB)
        hurried.sweep(time.monotonic() + HOUR + 1)
        assert client.response()[0].status == 408
        is_over.set()
        pushing.join(60)
        hurried.sweep(time.monotonic() + HOUR)  # it reads no more of what the client has sent
    assert hurried.app.finished == [False]


@RESPONSES
def test_a_response_that_is_read_steadily_is_ended(hurried: RunningServer, target: str) -> None:
    with slow_reader(hurried, target) as client:
        now = time.monotonic()
        for step in range(61):
            read_until(hurried, client, moved(hurried))
            hurried.sweep(now + 59 * step)
            assert hurried.server_connections == 1
        hurried.sweep(now + HOUR + 1)
        until(lambda: len(hurried.records) == 1)
    (record,) = hurried.records
    assert record.reason == FAULT
    assert record.sent > 0


@pytest.mark.parametrize(
    ("plane", "body", "words"),
    [
        ("v1", "abc", b'"code":"SERVICE_UNAVAILABLE"'),
        ("v2", "", b'"code":"UNKNOWN"'),
        ("v2", "abc", b'"code":"UNKNOWN"'),
    ],
)
def test_an_application_that_does_not_answer_is_ended_with_503(
    hurried: RunningServer, plane: str, body: str, words: bytes
) -> None:
    """In the plane's own shape, and the application learns that nobody waits for it."""
    with hurried.connect() as client:
        head = (
            f"PUT /{plane}/watch HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        )
        client.send(head.encode())
        until(lambda: is_asked_again(hurried))
        now = time.monotonic()
        hurried.sweep(now + HOUR - 60)
        assert not hurried.app.disconnected.is_set()
        hurried.sweep(now + HOUR + 1)
        response, content = client.response("PUT")
        assert (response.status, response.headers["connection"]) == (503, "close")
        assert words in content
        assert FAULT.encode() in content
        assert client.is_closed()
        assert hurried.app.disconnected.wait(60)
    assert [(record.status, record.reason) for record in hurried.records] == [(503, FAULT)]


def test_an_answer_that_has_begun_is_cut(hurried: RunningServer) -> None:
    with hurried.connect() as client:
        client.send(b"GET /v2/begun HTTP/1.1\r\nHost: a\r\n\r\n")
        assert hurried.app.started.wait(60)
        hurried.sweep(time.monotonic() + HOUR + 1)
        assert client.rest().endswith(b"begun\r\n")
        assert hurried.app.disconnected.wait(60)
    until(lambda: len(hurried.records) == 1)
    assert [(record.status, record.reason) for record in hurried.records] == [(200, FAULT)]


def test_a_client_whose_bytes_are_still_worked_on_is_disconnected(
    hurried: RunningServer, app: BusyApplication
) -> None:
    """The thread has the socket, so that no answer can be written to it; the work is not cut."""
    with hurried.connect() as client:
        client.send(b"PUT /v2/finishing HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
        assert app.started.wait(60)
        hurried.sweep(time.monotonic() + HOUR + 1)
        assert client.is_closed()
        assert app.finished == []
        app.may_finish.set()
        until(lambda: len(hurried.records) == 1)
    assert app.finished == [True]
    assert hurried.records[0].reason == FAULT


def test_an_application_that_does_not_read_the_rest_has_some_seconds_to_answer(
    hurried: RunningServer,
) -> None:
    with hurried.connect() as client:
        begin(client, "deaf", COUNTED)
        assert hurried.app.started.wait(60)
        now = time.monotonic()
        hurried.sweep(now + HOUR + 1)
        hurried.sweep(now + HOUR + GRACE - 1)
        assert not hurried.app.disconnected.is_set()
        hurried.sweep(now + HOUR + GRACE + 1)
        assert client.response()[0].status == 503
        assert client.is_closed()
        assert hurried.app.disconnected.wait(60)
    assert [(record.status, record.reason) for record in hurried.records] == [(503, FAULT)]


def test_without_the_limit_a_request_takes_as_long_as_it_takes(app: BusyApplication) -> None:
    with (
        serving(app, ServerLimits(sweep_seconds=NEVER)) as hurried,
        hurried.connect() as client,
    ):
        client.send(b"GET /v2/watch HTTP/1.1\r\nHost: a\r\n\r\n")
        until(lambda: is_asked_again(hurried))
        hurried.sweep(time.monotonic() + 1000 * HOUR)
        assert hurried.server_connections == 1
        assert not app.disconnected.is_set()

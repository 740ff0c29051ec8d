"""Requests and responses as ASGI sees them: framing, early refusals, failures, disconnects."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterable, Iterator

import pytest

from cloudcore.serving.asgi import Receive, Scope, Send
from cloudcore.serving.limits import KIB, MIB, ServerLimits
from cloudcore.serving.planes import Planes
from registry.composition.planes import dispatcher
from tests.descriptors import list_open
from tests.integration.serving_app import (
    Client,
    RunningServer,
    SampleApplication,
    serving,
)
from tests.waiting import until

LIMITS = ServerLimits(linger_seconds=1, refusal_drain_seconds=0.5, sweep_seconds=0.1)


@pytest.fixture
def plain() -> Iterator[RunningServer]:
    """Run a server without TLS: a client's end of that serves one thread, and none once broken."""
    with serving(limits=LIMITS) as running:
        yield running


@pytest.fixture(params=["uvloop", "uvloop+tls"])
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    with serving(limits=LIMITS, loop=request.param) as running:
        yield running


def request(method: str, target: str, fields: str = "") -> bytes:
    return f"{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n".encode()


EXPECTS = "Content-Length: 5\r\nExpect: 100-continue\r\n"


def test_a_body_is_held_until_the_application_asks(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(request("PUT", "/v2/echo", EXPECTS))
        assert client.line() + client.line() == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"hello")
        assert client.response()[1] == b"hello"
        # Nobody is invited who does not wait, or who is refused.
        response, body = client.ask(request("PUT", "/v2/echo", EXPECTS) + b"hello")
        assert (response.status, body) == (200, b"hello")
        response, body = client.ask(request("PUT", "/v2/refuse", EXPECTS))
        assert (response.status, response.headers["connection"], body) == (401, "close", b"no")
        assert client.is_closed()


@pytest.mark.parametrize("fields", ["", "Content-Length: 0\r\n"], ids=["none", "empty"])
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_client_that_asks_and_has_no_body_is_told_to_go_on(
    server: RunningServer, method: str, fields: str
) -> None:
    """botocore takes what comes instead for the answer to its next request as well."""
    with server.connect() as client:
        for _ in range(2):
            client.send(request(method, "/v2/b", fields + "Expect: 100-continue\r\n"))
            assert client.line() + client.line() == b"HTTP/1.1 100 Continue\r\n\r\n"
            response, body = client.response()
            assert (body, response.headers["connection"]) == (b"/v2/b?", None)


def test_the_plane_of_a_request_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def live(scope: Scope, receive: Receive, send: Send) -> None:
        for _ in range(2):
            await send({"type": f"{(await receive())['type']}.complete"})

    def counted(
        planes: Planes, path: bytes, headers: Iterable[tuple[bytes, bytes]] = (), port: int = 0
    ) -> int:
        found.append(path)
        return find(planes, path, headers, port)

    found, find = list[bytes](), Planes.find
    monkeypatch.setattr(Planes, "find", counted)
    application = dispatcher(SampleApplication(), live)
    with serving(application=application) as server, server.connect() as client:
        assert client.ask(request("GET", "/v2/refuse"))[0].status == 401
        until(lambda: len(server.records) == 1)
        assert (found, server.records[0].plane) == ([b"/v2/refuse"], 0)


@pytest.mark.parametrize("size", [1, 100_000, MIB])
def test_a_short_body_is_drained_after_a_refusal(server: RunningServer, size: int) -> None:
    with server.connect() as client:
        client.send(request("PUT", "/v2/refuse", f"Content-Length: {size}\r\n") + b"x" * size)
        response, _ = client.response()
        assert (response.status, response.headers["connection"]) == (401, None)
        assert client.ask(request("GET", "/v2/b"))[1] == b"/v2/b?"
        response, _ = client.ask(request("PUT", "/v2/refuse", "Content-Length: 5\r\n"))
        assert response.status == 401
        assert client.is_closed(), "the body does not come"


LONG = pytest.mark.parametrize(
    ("fields", "block"),
    [
        ("Content-Length: 100000000\r\n", b"x" * MIB),
        ("Transfer-Encoding: chunked\r\n", b"100000\r\n" + b"x" * MIB + b"\r\n"),
    ],
    ids=["counted", "chunked"],
)


@LONG
@pytest.mark.parametrize("target", ["refuse", "badsink"])
def test_a_client_that_reads_while_it_sends_gets_its_refusal_whole(
    plain: RunningServer, target: str, fields: str, block: bytes
) -> None:
    with plain.connect() as client:
        client.send(request("PATCH", f"/v2/{target}", fields))
        sender = threading.Thread(target=send_blocks, args=(client, block))
        sender.start()
        response, body = client.response()
        assert (response.status, body) in ((401, b"no"), (507, b"'full'"))
        assert response.headers["connection"] == "close"
        sender.join(20)
        assert not sender.is_alive()


@LONG
def test_a_client_that_only_sends_is_cut_and_can_still_read_its_refusal(
    plain: RunningServer, fields: str, block: bytes
) -> None:
    """Of what comes after an answer 1 MiB is read, by one read more or less; then comes the end."""
    with plain.connect() as client:
        client.send(request("PATCH", "/v2/refuse", fields))
        until(lambda: plain.server_connections == 1)
        (connection,) = plain.connections
        assert not send_blocks(client, block)
        response, body = client.response()
        assert (response.status, body) == (401, b"no")
    until(lambda: not plain.server_connections)
    assert MIB - 256 * KIB <= connection.discarded <= MIB + 256 * KIB


def test_what_an_earlier_answer_dropped_does_not_shorten_the_wait_after_a_later_one(
    plain: RunningServer,
) -> None:
    with plain.connect() as client:
        client.send(request("PUT", "/v2/refuse", f"Content-Length: {MIB}\r\n") + b"x" * MIB)
        assert client.response()[0].headers["connection"] is None
        response, _ = client.ask(request("PUT", "/v2/refuse", "Content-Length: 100000000\r\n"))
        assert response.headers["connection"] == "close"
        (connection,) = plain.connections
        client.send(b"x" * KIB)
        until(lambda: connection.discarded == KIB)


def send_blocks(client: Client, block: bytes) -> bool:
    """Send a block 95 times; return False when the server ends that."""
    try:
        for _ in range(95):
            client.send(block)
    except ConnectionError:
        return False
    return True


def test_a_body_is_told_by_its_length_or_by_chunks_or_is_none(server: RunningServer) -> None:
    for method, target, status, length, coding, expected in (
        ("HEAD", "/v2/abc", 200, "8", None, b""),
        ("GET", "/v2/empty?204", 204, None, None, b""),
        ("GET", "/v2/empty?304", 304, "11", None, b""),
        ("GET", "/v2/stream?3", 200, None, "chunked", b"x" * 3 * 65536),
    ):
        with server.connect() as client:
            response, body = client.ask(request(method, target))
            told = [response.headers[name] for name in ("content-length", "transfer-encoding")]
            assert (response.status, told, body) == (status, [length, coding], expected)
            assert client.ask(request("GET", "/v2/b"))[1] == b"/v2/b?"


def test_a_body_of_unknown_length_ends_with_the_connection_of_http_1_0(
    server: RunningServer,
) -> None:
    with server.connect() as client:
        client.send(b"GET /v2/stream?2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        response, body = client.response()
        assert response.headers["transfer-encoding"] is None
        assert response.headers["connection"] == "close"
        assert body == b"x" * 2 * 65536


@pytest.mark.parametrize("target", ["/v2/crash", "/v2/silence", "/v2/injected"])
def test_a_failing_application_becomes_a_500_without_detail(
    server: RunningServer, target: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    with server.connect() as client:
        response, body = client.ask(request("GET", target))
        assert response.status == 500
        assert json.loads(body)["errors"][0]["code"] == "UNKNOWN"
        assert b"secret" not in body
        assert client.is_closed()


@pytest.mark.parametrize("target", ["/v2/late", "/v2/short", "/v2/cut"])
def test_half_a_response_cannot_be_taken_for_a_whole_one(
    server: RunningServer, target: str, caplog: pytest.LogCaptureFixture
) -> None:
    """If an expected error cuts it off, that is a warning."""
    with server.connect() as client:
        client.send(request("GET", target))
        with pytest.raises((ConnectionResetError, OSError, Exception)):
            client.response()
    until(lambda: bool(caplog.records))
    if target == "/v2/cut":
        assert [(each.levelname, each.exc_info, each.getMessage()) for each in caplog.records] == [
            ("WARNING", None, "the response was cut off: the upstream has gone")
        ]


def test_the_application_learns_that_its_client_left(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(request("GET", "/v2/watch"))
        client.sock.shutdown(socket.SHUT_RDWR)
    assert server.app.disconnected.wait(30)


@pytest.mark.parametrize("fields", ["Content-Length: 10\r\n", "Transfer-Encoding: chunked\r\n"])
def test_the_application_learns_that_its_client_left_amid_the_body(
    server: RunningServer, fields: str
) -> None:
    with server.connect() as client:
        client.send(request("PUT", "/v2/echo", fields) + b"3\r\n")
    assert server.app.disconnected.wait(30)


def test_a_response_nobody_reads_ends_with_the_connection(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(request("GET", "/v2/stream?100000"))
        assert client.sock.recv(1)
    assert server.app.returned.wait(30)


def test_request_cycles_are_told_to_the_observers(server: RunningServer) -> None:
    with server.connect() as client:
        client.ask(request("PUT", "/v2/echo?n=1", "Content-Length: 5\r\n") + b"hello")
        refused, _ = client.ask(b"HEAD /v2/a?n=1 HTTP/1.1\r\n\r\n")
    until(lambda: len(server.records) == 2)
    record, refusal = server.records
    assert (record.method, record.path, record.query) == ("PUT", b"/v2/echo", b"n=1")
    assert (record.status, record.received, record.sent) == (200, 5, 5)
    assert record.client == "127.0.0.1"
    assert 0 < record.seconds < 10
    assert (refusal.method, refusal.path, refusal.status) == ("HEAD", b"/v2/a", 400)
    assert refusal.request_id == refused.headers["x-request-id"]


@pytest.mark.parametrize(
    ("asked", "status", "reason"),
    [
        (request("GET", "/v2/crash"), 500, "internal server error"),
        (request("GET", "/v2/silence"), 500, "the application did not finish its response"),
        (request("GET", "/v2/late"), 200, "internal server error"),
        (b"GET /v2/ HTTP/1.1\r\n\r\n", 400, "missing Host field"),
        (
            request("PUT", "/v2/sink", "Transfer-Encoding: chunked\r\n") + b"x\r\n",
            400,
            "malformed chunk size",
        ),
        (request("GET", "/v2/refuse"), 401, ""),
    ],
)
def test_what_the_server_ends_itself_is_told_with_a_reason(
    plain: RunningServer,
    asked: bytes,
    status: int,
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    with plain.connect() as client:
        client.send(asked)
        until(lambda: len(plain.records) == 1)
    (record,) = plain.records
    assert (record.status, record.reason) == (status, reason)


def test_no_descriptor_is_left_behind(server: RunningServer) -> None:
    def use() -> None:
        clients = [server.connect() for _ in range(10)]
        for number, client in enumerate(clients):
            client.send(request("PUT", "/v2/sink", "Content-Length: 1000000\r\n") + b"x")
            if number % 2:
                client.send(b"x" * 999_999)
                assert client.response()[0].status == 201
            client.close()
        until(lambda: not server.server_connections and not server.worker.receivers.jobs)

    use()
    before = list_open()
    for _ in range(3):
        use()
    until(lambda: not list_open() - before)  # a loop closes a socket once all are told


def test_many_connections_at_once(server: RunningServer) -> None:
    clients = [server.connect() for _ in range(200)]
    for client in clients:
        client.send(request("GET", "/v2/slow?0.05"))
    assert [client.response()[1] for client in clients] == [b"done"] * 200
    for client in clients:
        client.close()


def test_quick_answers_beside_slow_readers(server: RunningServer) -> None:
    slow = [server.connect() for _ in range(20)]
    for client in slow:
        client.send(request("GET", "/v2/stream?1000"))
        assert client.sock.recv(1)
    with server.connect() as client:
        for _ in range(50):
            assert client.ask(request("GET", "/v2/b"))[1] == b"/v2/b?"
    for client in slow:
        client.close()


def test_threads_do_not_grow_with_slow_clients(server: RunningServer) -> None:
    clients: list[Client] = []
    for _ in range(64):
        client = server.connect()
        client.send(request("PUT", "/v2/sink", "Content-Length: 10\r\n") + b"x")
        clients.append(client)
    with server.connect() as client:
        response, _ = client.ask(request("PUT", "/v2/sink", "Content-Length: 3\r\n") + b"abc")
        assert response.status == 201
    names = [thread.name for thread in threading.enumerate()]
    receiving = [name for name in names if name.startswith("bulk-receive")]
    assert len(set(receiving)) <= LIMITS.receive_threads
    for client in clients:
        client.send(b"y" * 9)
        assert client.response()[0].status == 201
        client.close()

"""Raw requests, down to the byte: what is ambiguous or malformed is refused and closed."""

from __future__ import annotations

import json
import socket
import ssl
import uuid
from collections.abc import Iterator

import pytest

from cloudcore.serving.http.head import METHODS
from cloudcore.serving.limits import ServerLimits
from cloudcore.serving.request_record import TLS_HELLO, RequestRecord
from tests.integration.serving_app import Client, RunningServer, serving

HOST = b"Host: registry.test\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
LAST = b"0\r\n\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """Run a server with a shorter linger."""
    with serving(limits=ServerLimits(linger_seconds=0.5, sweep_seconds=0.1)) as running:
        yield running


def get(fields: bytes = b"", target: bytes = b"/v2/", version: bytes = b"HTTP/1.1") -> bytes:
    return b"GET %s %s\r\n%s%s\r\n" % (target, version, HOST, fields)


REFUSED = {
    "two lengths": (400, get(b"Content-Length: 2\r\nContent-Length: 2\r\n") + b"ab"),
    "length list": (400, get(b"Content-Length: 2, 2\r\n") + b"ab"),
    "signed length": (400, get(b"Content-Length: +2\r\n") + b"ab"),
    "negative length": (400, get(b"Content-Length: -1\r\n")),
    "hexadecimal length": (400, get(b"Content-Length: 0x2\r\n") + b"ab"),
    "empty length": (400, get(b"Content-Length: \r\n")),
    "length of 30 digits": (400, get(b"Content-Length: " + b"9" * 30 + b"\r\n")),
    "length and chunked": (400, get(b"Content-Length: 4\r\n" + CHUNKED) + LAST),
    "chunked and length": (400, get(CHUNKED + b"Content-Length: 4\r\n") + LAST),
    "gzip, chunked": (400, get(b"Transfer-Encoding: gzip, chunked\r\n") + LAST),
    "chunked, chunked": (400, get(b"Transfer-Encoding: chunked, chunked\r\n") + LAST),
    "identity": (400, get(b"Transfer-Encoding: identity\r\n")),
    "two encodings": (400, get(CHUNKED * 2) + LAST),
    "xchunked": (400, get(b"Transfer-Encoding: xchunked\r\n")),
    "vertical tab before chunked": (400, get(b"Transfer-Encoding: \x0bchunked\r\n")),
    "space before colon": (400, get(b"Transfer-Encoding : chunked\r\n") + LAST),
    "tab before colon": (400, get(b"Content-Length\t: 2\r\n") + b"ab"),
    "space in a name": (400, get(b"X Y: 1\r\n")),
    "no colon": (400, get(b"nonsense\r\n")),
    "empty name": (400, get(b": value\r\n")),
    "folded line": (400, get(b"X-A: 1\r\n folded\r\n")),
    "line folded with a tab": (400, get(b"X-A: 1\r\n\tfolded\r\n")),
    "first field folded": (400, b"GET /v2/ HTTP/1.1\r\n " + HOST + b"\r\n"),
    "bare LF everywhere": (400, b"GET /v2/ HTTP/1.1\nHost: a\n\n"),
    "bare LF in a value": (400, get(b"X-A: 1\nX-B: 2\r\n")),
    "bare CR in a value": (400, get(b"X-A: 1\rX-B: 2\r\n")),
    "CR in one value, LF in the next": (400, get(b"X-A: 1\rx\r\nX-B: 2\nx\r\n")),
    "NUL in a value": (400, get(b"X-A: 1\x002\r\n")),
    "DEL in a value": (400, get(b"X-A: \x7f\r\n")),
    "no host": (400, b"GET /v2/ HTTP/1.1\r\n\r\n"),
    "no host of the control plane": (400, b"GET /v1/x HTTP/1.1\r\n\r\n"),
    "two hosts": (400, get(HOST)),
    "two different hosts": (400, get(b"Host: other.test\r\n")),
    "host with a path": (400, b"GET /v2/ HTTP/1.1\r\nHost: a/b\r\n\r\n"),
    "host with a user": (400, b"GET /v2/ HTTP/1.1\r\nHost: u@a\r\n\r\n"),
    "host with a space": (400, b"GET /v2/ HTTP/1.1\r\nHost: a b\r\n\r\n"),
    "HTTP/0.9": (400, b"GET /v2/\r\n"),
    "HTTP/1.0 with chunked": (400, get(CHUNKED, version=b"HTTP/1.0") + LAST),
    "HTTP/1.2": (400, get(version=b"HTTP/1.2")),
    "HTTP/2.0": (400, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "lower-case version": (400, get(version=b"http/1.1")),
    "two spaces": (400, b"GET  /v2/ HTTP/1.1\r\n" + HOST + b"\r\n"),
    "tab as separator": (400, b"GET\t/v2/\tHTTP/1.1\r\n" + HOST + b"\r\n"),
    "space at the end of the line": (400, b"GET /v2/ HTTP/1.1 \r\n" + HOST + b"\r\n"),
    "no target": (400, b"GET HTTP/1.1\r\n" + HOST + b"\r\n"),
    "control character in the target": (400, get(target=b"/v2/\x01")),
    "raw UTF-8 in the target": (400, get(target="/v2/ä".encode())),
    "fragment": (400, get(target=b"/v2/#top")),
    "relative target": (400, get(target=b"v2/")),
    "asterisk": (400, get(target=b"*")),
    "authority": (400, get(target=b"registry.test:80")),
    "absolute form of another host": (421, get(target=b"http://other.test/v2/")),
    "absolute form with a user": (421, get(target=b"http://u@registry.test/v2/")),
    "absolute form of another scheme": (400, get(target=b"ftp://registry.test/v2/")),
    "lower-case method": (405, b"get /v2/ HTTP/1.1\r\n" + HOST + b"\r\n"),
    "unknown method": (405, b"FOO /v2/ HTTP/1.1\r\n" + HOST + b"\r\n"),
    "TRACE": (405, b"TRACE /v2/ HTTP/1.1\r\n" + HOST + b"\r\n"),
    "CONNECT": (405, b"CONNECT /v2/ HTTP/1.1\r\n" + HOST + b"\r\n"),
    "method with a quote": (400, b'G"T /v2/ HTTP/1.1\r\n' + HOST + b"\r\n"),
    "unknown expectation": (417, get(b"Expect: 200-foo\r\nContent-Length: 2\r\n") + b"ab"),
    "two expectations": (400, get(b"Expect: 100-continue\r\n" * 2)),
    "1 MiB of one field": (431, get(b"X-A: " + b"a" * 2**20 + b"\r\n")),
    "endless request line": (431, b"GET /v2/" + b"a" * 200_000),
    "20,000 fields": (431, get(b"A:\r\n" * 20_000)),
    "101 fields": (431, get(b"A: b\r\n" * 100)),
    "endless extension": (400, get(CHUNKED, b"/v2/echo") + b"3;" + b"a" * 70_000),
    "malformed chunk": (400, get(CHUNKED, b"/v2/echo") + b"zz\r\nabc\r\n"),
}  # fmt: skip


@pytest.mark.parametrize(("status", "request_"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused_and_the_connection_closed(
    server: RunningServer, status: int, request_: bytes
) -> None:
    with server.connect() as client:
        client.send(request_)
        response, body = client.response()
        assert response.status == status
        assert response.headers["connection"] == "close"
        assert response.headers["content-type"] == "application/json"
        assert uuid.UUID(response.headers["x-request-id"]).version == 4
        document = json.loads(body)
        if b"/v2/" in request_.split(b"\n", 1)[0]:
            assert response.headers["docker-distribution-api-version"] == "registry/2.0"
            (error,) = document["errors"]
            assert error == {"code": "UNSUPPORTED", "message": error["message"], "detail": None}
        else:
            error = document["error"]
            assert error["code"] == ("METHOD_NOT_ALLOWED" if status == 405 else "INVALID_INPUT")
            assert error["request_id"] == response.headers["x-request-id"]
        assert error["message"]
        assert status != 405 or "PATCH" in response.headers["allow"].split(", ")
        assert client.is_closed()


def test_a_bad_request_in_small_pieces_is_refused_too(server: RunningServer) -> None:
    request = get(b"Transfer-Encoding: gzip, chunked\r\n")
    for size in (1, 7, 40):
        with server.connect() as client:
            for at in range(0, len(request), size):
                client.send(request[at : at + size])
            assert client.response()[0].status == 400
            assert client.is_closed()


def test_a_refused_head_request_gets_no_body(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(b"HEAD /v2/ HTTP/1.1\r\n\r\n")
        response, body = client.response("HEAD")
        assert (response.status, body) == (400, b"")
        assert int(response.headers["content-length"]) > 0
        assert client.is_closed()


def test_an_early_refusal_is_recorded_with_its_method(server: RunningServer) -> None:
    for method, recorded in (*METHODS.items(), (b"TRACE", ""), (b"OPTIONSX", "")):
        path = b"/v2/" + method.lower()  # a record of an earlier test may still come
        with server.connect() as client:
            client.send(method + b" " + path + b" HTTP/1.1\r\n\r\n")
            client.response(method.decode())
            assert client.is_closed()
        (record,) = [record for record in server.records if record.path == path]
        assert record.method == recorded


HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 506


def refused_tls(server: RunningServer) -> list[RequestRecord]:
    """Return the records of clients that were told to speak plain HTTP."""
    return [record for record in server.records if record.reason == TLS_HELLO]


@pytest.mark.parametrize("pieces", [(HELLO,), (HELLO[:1], HELLO[1:]), (HELLO[:1],)])
def test_a_tls_hello_is_answered_in_plain_text(
    server: RunningServer, pieces: tuple[bytes, ...]
) -> None:
    """Go clients, which try TLS first, look for ``HTTP/`` and go on without TLS."""
    before = refused_tls(server)
    with server.connect() as client:
        client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            client.send(piece)
        response, body = client.response()
        assert response.status == 400
        assert response.headers["connection"] == "close"
        assert response.headers["content-type"].startswith("text/plain")
        assert b"plain HTTP" in body
        assert client.is_closed()
    (record,) = refused_tls(server)[len(before) :]
    assert (record.status, record.path) == (400, b"")


def test_a_tls_client_is_told_that_this_is_http(server: RunningServer) -> None:
    context = ssl.create_default_context()
    with server.connect() as client, pytest.raises(ssl.SSLError, match=r"(?i)wrong.version|http"):
        context.wrap_socket(client.sock, server_hostname="localhost")


ANSWERED = {
    "plain": (get(), b"/v2/?"),
    "query": (get(target=b"/v2/?n=1&last=%20"), b"/v2/?n=1&last=%20"),
    "raw path is kept": (get(target=b"/v2//a/%2E%2e/b%2Fc;x"), b"/v2//a/%2E%2e/b%2Fc;x?"),
    "absolute form": (get(target=b"http://registry.test/v2/x?n=1"), b"/v2/x?n=1"),
    "absolute form, other case": (get(target=b"HTTP://REGISTRY.test/v2/"), b"/v2/?"),
    "absolute form without path": (get(target=b"http://registry.test"), b"/?"),
    "empty lines first": (b"\r\n\r\n" + get(), b"/v2/?"),
    "host with port": (b"GET /v2/ HTTP/1.1\r\nHost: [::1]:5000\r\n\r\n", b"/v2/?"),
    "no space after the colon": (b"GET /v2/ HTTP/1.1\r\nHost:a\r\n\r\n", b"/v2/?"),
    "upgrade offered": (get(b"Connection: Upgrade\r\nUpgrade: h2c\r\n"), b"/v2/?"),
    "100 fields": (get(b"A: b\r\n" * 99), b"/v2/?"),
    "64 KiB token": (get(b"Authorization: Bearer " + b"a" * 65_536 + b"\r\n"), b"/v2/?"),
    "obs-text in a value": (get(b"X-A: \xe4\r\n"), b"/v2/?"),
}


@pytest.mark.parametrize(("request_", "body"), ANSWERED.values(), ids=ANSWERED)
def test_it_is_answered_and_the_connection_kept(
    server: RunningServer, request_: bytes, body: bytes
) -> None:
    with server.connect() as client:
        for _ in range(2):
            response, found = client.ask(request_)
            assert (response.status, found) == (200, body)


def test_pipelined_requests_are_answered_in_order(server: RunningServer) -> None:
    with server.connect() as client:
        targets = [b"/v2/slow?0.1", b"/v2/a", b"/v2/slow?0", b"/v2/b", b"/v2/c"]
        client.send(b"".join(get(target=target) for target in targets))
        bodies = [client.response()[1] for _ in targets]
        assert bodies == [b"done", b"/v2/a?", b"done", b"/v2/b?", b"/v2/c?"]


def test_pipelined_requests_are_answered_after_a_half_close(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(get(target=b"/v2/a") + get(target=b"/v2/b"))
        client.end_sending()
        assert [client.response()[1] for _ in range(2)] == [b"/v2/a?", b"/v2/b?"]
        assert client.is_closed()


BODIES = {
    "counted": b"Content-Length: 5\r\n\r\nhello",
    "chunked": b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nT: 1\r\n\r\n",
    "CHUNKED": b"Transfer-Encoding: CHUNKED\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
}
TAKEN = ((b"echo", 200), (b"sink", 201))


@pytest.mark.parametrize(
    ("how", "status", "body"),
    [
        *((how, status, each) for how, status in TAKEN for each in BODIES.values()),
        (b"refuse", 401, BODIES["counted"]),  # else the connection ends
    ],
)
def test_a_request_that_comes_before_a_body_is_taken_is_not_taken_for_it(
    server: RunningServer, how: bytes, status: int, body: bytes
) -> None:
    server.app.started.clear()
    with server.connect() as client:
        client.send(b"PUT /v2/busy?%s HTTP/1.1\r\n%s%s" % (how, HOST, body))
        assert server.app.started.wait(60)
        client.send(get(target=b"/v2/a") + get(target=b"/v2/b"))
        response, found = client.response()
        assert response.status == status
        if how == b"echo":
            assert found == b"hello"
        assert [client.response()[1] for _ in range(2)] == [b"/v2/a?", b"/v2/b?"]


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("target", [b"/v2/echo", b"/v2/sink"])
def test_a_body_ends_where_it_says_and_the_next_request_follows(
    server: RunningServer, body: bytes, target: bytes
) -> None:
    stream = b"PUT %s HTTP/1.1\r\n%s%s" % (target, HOST, body) + get(target=b"/v2/next")
    for size in (1, 10, 10_000):
        with server.connect() as client:
            for at in range(0, len(stream), size):
                client.send(stream[at : at + size])
            response, found = client.response()
            assert response.status in (200, 201)
            assert found == b"hello" or target != b"/v2/echo"
            assert client.response()[1] == b"/v2/next?"


def begin(server: RunningServer, client: Client) -> None:
    """Send the start of a chunked body, of which the application then waits for more."""
    server.app.started.clear()
    client.send(b"PUT /v2/again HTTP/1.1\r\n" + HOST + CHUNKED + b"Expect: 100-continue\r\n\r\n")
    assert client.line() + client.line() == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(b"5\r\nhello\r\n")
    assert server.app.started.wait(60)


@pytest.mark.parametrize("cut", [0, 9, 100])
def test_a_request_follows_a_body_that_ends_before_it_is_moved(
    server: RunningServer, cut: int
) -> None:
    after = get(target=b"/v2/next")
    with server.connect() as client:
        begin(server, client)
        client.send(b"1\r\n!\r\n" + LAST + after[:cut])
        response, found = client.response()
        assert (response.status, found) == (201, b"hello!")
        client.send(after[cut:])
        assert client.response()[1] == b"/v2/next?"


def test_a_body_that_breaks_before_it_is_moved_stays_incomplete(server: RunningServer) -> None:
    with server.connect() as client:
        begin(server, client)
        client.send(b"nonsense\r\n")
        client.send(b"5\r\nworld\r\n" + LAST)
        response, found = client.response()
        assert (response.status, found) == (400, b"hello")
        assert client.is_closed()


def test_the_unread_body_of_a_get_is_drained(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(
            get(b"Content-Length: 25\r\n") + b"GET /evil HTTP/1.1\r\nHost:" + get(target=b"/v2/b")
        )
        assert client.response()[1] == b"/v2/?"
        assert client.response()[1] == b"/v2/b?"


def test_a_connection_is_kept_as_the_client_asks(server: RunningServer) -> None:
    with server.connect() as client:
        response, _ = client.ask(b"GET /v2/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert (response.status, response.headers["connection"]) == (200, "keep-alive")
        response, _ = client.ask(b"GET /v2/ HTTP/1.0\r\n\r\n")
        assert (response.status, response.headers["connection"]) == (200, "close")
        assert client.is_closed()
    with server.connect() as client:
        response, _ = client.ask(get(b"Connection: x, Close\r\n"))
        assert response.headers["connection"] == "close"
        assert client.is_closed()

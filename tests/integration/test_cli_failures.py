"""What the command says when something else answers than a registry, or nothing does.

A request whose answer is lost on the way is sent again only if that does no harm.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from cloudcore.command_failures import (
    FAILED,
    MISUSE,
    NOT_FOUND,
    SIGNED_OUT,
    CommandFailure,
    RequestRefused,
)
from registry.cli.client.api import ApiClient
from registry.cli.client.transport import ConnectionLost, HttpRequest, Transport, base_url
from tests.certificates import self_signed
from tests.integration.cli_world import Known

Answer = tuple[int, dict[str, str], bytes] | None
"""None hangs up without one."""
UNEXPLAINED = (
    "{url} answered 502 without saying why; is it the URL of the registry, "
    "and is there a proxy before it?"
)
LACKING = (
    "the answer of {url} has no 'repositories': it is no registry, "
    "or its version is another than 'entrepot --version' tells"
)
ROWS: Final[Answer] = (200, {}, b'{"rows": [], "meta": {"marker": null}}')
HTML = b"<html><h1>Welcome</h1></html>"


class Asked(NamedTuple):
    """A request."""

    method: str
    path: str
    token: str | None
    key: str | None
    body: bytes


class Stranger(ThreadingHTTPServer):
    """Answers everything with what the test has laid out, in turn; the last one stays."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.answers = list(answers)
        self.asked: list[Asked] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answering(BaseHTTPRequestHandler):
    server: Stranger

    def do_GET(self) -> None:
        answers = self.server.answers
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        token, key = map(self.headers.get, ("Authorization", "Idempotency-Key"))
        self.server.asked.append(Asked(self.command, self.path, token, key, sent))
        if answer is None:
            self.close_connection = True
            return
        status, headers, body = answer
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the base class calls them

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def serving(server: Stranger) -> Iterator[Stranger]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def envelope(code: str, message: str, **params: object) -> bytes:
    error = {"code": code, "message": message, "request_id": "r-1"}
    return json.dumps({"error": error | ({"params": params} if params else {})}).encode()


def client_of(server: Stranger, *tokens: str) -> ApiClient:
    return ApiClient(Transport(server.url), Known(*(tokens or ("t",))))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((200, {}, HTML), "what answers at {url} is no registry; check the URL"),
        ((200, {}, b"[1]"), "what answers at {url} is no registry; check the URL"),
        ((200, {}, b"\xff"), "what answers at {url} is no registry; check the URL"),
        ((502, {}, HTML), UNEXPLAINED),
        (
            (301, {"Location": "https://elsewhere/"}, b""),
            "{url} redirects to https://elsewhere/; use that URL",
        ),
        (
            (404, {}, envelope("NOT_FOUND", "there is no such repository")),
            "NOT_FOUND: there is no such repository (request r-1)",
        ),
        (
            (400, {}, envelope("INVALID_INPUT", "too long", field="name", reason="length")),
            "INVALID_INPUT: name: too long (request r-1)",
        ),
        (
            (403, {}, envelope("ACCESS_DENIED", "no \x1b[2J\u202e")),
            "ACCESS_DENIED: no \\x1b[2J\\u202e (request r-1)",
        ),
        (
            (429, {"Retry-After": "37"}, envelope("RATE_LIMITED", "too many requests")),
            "RATE_LIMITED: too many requests (request r-1); try again in 37 seconds, not before",
        ),
        (
            (429, {"Retry-After": "5"}, envelope("KEY_BEING_MADE", "one at a time")),
            "KEY_BEING_MADE: one at a time (request r-1); try again in 5 seconds, not before",
        ),
        (
            (400, {}, b'{"error": "invalid_grant", "error_description": "it is over"}'),
            "invalid_grant: it is over",
        ),
        ((500, {}, b"{}"), "the registry answered 500"),
        ((200, {}, b"{}"), LACKING),
        ((200, {"Content-Length": "9"}, b"{"), "{url} does not speak HTTP; is it an https:// URL?"),
    ],
)
def test_every_answer_but_the_expected_one_is_one_line(answer: Answer, words: str) -> None:
    with serving(Stranger(answer)) as server, pytest.raises(CommandFailure) as told:
        client_of(server).call("GET", "/v1/repositories")["repositories"]
    assert str(told.value) == words.format(url=server.url)
    assert told.value.exit_status == (NOT_FOUND if words.startswith("NOT_FOUND") else FAILED)


def test_a_request_in_a_trace_has_neither_bearer_nor_body() -> None:
    request = HttpRequest("POST", "/v1/a?code=secret", {"Authorization": "secret"}, b"secret")
    assert repr(request) == "HttpRequest('POST', '/v1/a')"


def test_a_401_is_tried_once_more_with_another_token() -> None:
    no: Answer = (401, {}, envelope("UNAUTHORIZED", "the token is over"))
    with serving(Stranger(no, (200, {}, b'{"a": 1}'))) as server:
        assert client_of(server, "old", "new").call("POST", "/v1/x", {}) == {"a": 1}
    assert [each[:3] for each in server.asked] == [
        ("POST", "/v1/x", "Bearer old"),
        ("POST", "/v1/x", "Bearer new"),
    ]
    with serving(Stranger(no)) as server, pytest.raises(RequestRefused) as told:
        client_of(server, "old", "new").call("GET", "/v1/x")
    assert told.value.exit_status == SIGNED_OUT
    assert len(server.asked) == 2


def test_a_list_is_read_page_by_page() -> None:
    def page(marker: str | None, *names: str) -> Answer:
        answer: dict[str, Any] = {"things": [{"name": name} for name in names]}
        return 200, {}, json.dumps(answer | {"meta": {"marker": marker}}).encode()

    with serving(Stranger(page("a&b", "x", "y"), page("c"), page(None, "z"))) as server:
        query = {"name_prefix": None, "deleted": True, "limit": 2}
        rows = client_of(server).rows("/v1/things", "things", query)
        assert [row["name"] for row in rows] == ["x", "y", "z"]
    assert [each.path for each in server.asked] == [
        "/v1/things?limit=2&deleted=true",
        "/v1/things?limit=2&deleted=true&marker=a%26b",
        "/v1/things?limit=2&deleted=true&marker=c",
    ]


@pytest.mark.parametrize(
    ("greeting", "scheme", "words"),
    [
        (b"SSH-2.0-OpenSSH_9\r\n", "http", "{url} does not speak HTTP; is it an https:// URL?"),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "https",
            "{url} does not speak TLS as it should; is it an http:// URL?",
        ),
    ],
)
def test_another_protocol_is_told(greeting: bytes, scheme: str, words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(greeting)

        thread = threading.Thread(target=greet)
        thread.start()
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(CommandFailure) as told:
            Transport(url).send(HttpRequest("GET", "/v1/x"))
        thread.join()
    assert str(told.value) == words.format(url=url)


def test_a_refused_connection_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(CommandFailure) as told:
        Transport(url).send(HttpRequest("GET", "/v1/x"))
    assert str(told.value) == (
        f"cannot reach {url}: Connection refused; check the URL, or try again later"
    )


def test_an_untrusted_certificate_is_told_and_can_be_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = self_signed(tmp_path, "registry")
    server = Stranger((200, {}, b"{}"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server):
        url = server.url.replace("http:", "https:")
        with pytest.raises(CommandFailure) as told:
            Transport(url).send(HttpRequest("GET", "/v1/x"))
        assert str(told.value).startswith(f"the certificate of {url} is not trusted: self-signed")
        assert str(told.value).endswith("; name the file of its authority in SSL_CERT_FILE")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert Transport(url).send(HttpRequest("GET", "/v1/x")) == {}


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://Registry.Example.com/", "https://registry.example.com"),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("http://[::1]:5000/", "http://[::1]:5000"),
        ("https://example.com/registry/", "https://example.com/registry"),
    ],
)
def test_a_url_has_one_spelling(url: str, kept: str) -> None:
    assert base_url(url) == kept


@pytest.mark.parametrize(
    "url",
    [
        *("registry.example.com", "ftp://registry.example.com", "https://", "", "http://[::1"),
        *("https://host:port", "https://host:70000", "https://user:secret@host", "https://h?q"),
        *("https://h#f", "https://h\r\nX: y", "https://h\x1b", "https://bücher.example"),
    ],
)
def test_what_is_no_url_of_a_registry_is_misuse(url: str) -> None:
    with pytest.raises(CommandFailure) as told:
        base_url(url)
    assert told.value.exit_status == MISUSE
    assert str(told.value).isprintable()
    assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.call("GET", "/v1/x"),
        lambda client: client.call("PUT", "/v1/x", {"a": 1}),
        lambda client: client.put_if({}, "/v1/x", {"a": 1}),
        lambda client: client.create("/v1/x", {"a": 1}),
        lambda client: client.create("/v1/x/restore"),
        lambda client: client.fetch("/v1/x"),
        lambda client: list(client.rows("/v1/x", "rows")),
    ],
)
def test_what_does_no_harm_is_sent_once_more(call: Callable[[ApiClient], object]) -> None:
    with serving(Stranger(None, ROWS)) as server:
        call(client_of(server))
    first, second = server.asked
    assert first == second  # with the same key, where there is one
    with serving(Stranger(None)) as server, pytest.raises(ConnectionLost):
        call(client_of(server))
    assert len(server.asked) == 2


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
def test_what_might_be_done_twice_is_not(method: str) -> None:
    with serving(Stranger(None, ROWS)) as server, pytest.raises(ConnectionLost) as told:
        client_of(server).call(method, "/v1/x", {"a": 1})
    assert len(server.asked) == 1
    words = "hung up before it had answered; check whether it was done nevertheless"
    assert str(told.value).endswith(words)


@pytest.mark.parametrize(
    ("method", "advice"),
    [("GET", "try again later"), ("DELETE", "check whether it was done nevertheless")],
)
def test_what_is_not_answered_in_time_may_have_been_done(method: str, advice: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and never reads
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(CommandFailure) as told:
            Transport(url, timeout_seconds=0.05).send(HttpRequest(method, "/v1/x"))
    assert str(told.value) == f"no answer of {url} in time; {advice}"


@pytest.mark.parametrize("condition", [{"If-Match": '"sha256:0"'}, {"If-None-Match": "*"}])
def test_what_makes_its_own_condition_untrue_is_not(condition: dict[str, str]) -> None:
    with serving(Stranger(None, ROWS)) as server, pytest.raises(ConnectionLost):
        client_of(server).put_if(condition, "/v1/x", {"a": 1})
    assert len(server.asked) == 1


def test_each_creation_has_a_key_of_its_own() -> None:
    with serving(Stranger(ROWS)) as server:
        for _ in range(2):
            client_of(server).create("/v1/x", {"a": 1})
    keys = [each.key for each in server.asked]
    assert None not in keys
    assert len(set(keys)) == 2

"""Requests whose answer is lost on the way: which are sent again, and which never are."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

import pytest

from cloudcore.command_failures import CommandFailure
from registry.cli.client.api import ApiClient
from registry.cli.client.transport import ConnectionLost, Transport
from tests.integration.cli_world import Known

_ANSWER: Final = json.dumps({"rows": [], "meta": {"marker": None}}).encode()


class Dropping(ThreadingHTTPServer):
    """Takes requests, and hangs up on the first so many without an answer."""

    def __init__(self, drops: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.drops = drops
        self.asked: list[tuple[str, str | None, bytes]] = []

    @property
    def client(self) -> ApiClient:
        return ApiClient(Transport(f"http://127.0.0.1:{self.server_address[1]}"), Known("t"))


class _Handler(BaseHTTPRequestHandler):
    server: Dropping

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.command, self.headers.get("Idempotency-Key"), body))
        if len(self.server.asked) <= self.server.drops:
            self.close_connection = True
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(_ANSWER)))
        self.end_headers()
        self.wfile.write(_ANSWER)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the base class calls them

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def dropping(drops: int) -> Iterator[Dropping]:
    server = Dropping(drops)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


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
    with dropping(1) as server:
        call(server.client)
    first, second = server.asked
    assert first == second  # with the same key, where there is one
    with dropping(2) as server, pytest.raises(ConnectionLost):
        call(server.client)
    assert len(server.asked) == 2


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
def test_what_might_be_done_twice_is_not(method: str) -> None:
    with dropping(1) as server, pytest.raises(ConnectionLost) as told:
        server.client.call(method, "/v1/x", {"a": 1})
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
            Transport(url, timeout_seconds=0.05).send(method, "/v1/x", {})
    assert str(told.value) == f"no answer of {url} in time; {advice}"


@pytest.mark.parametrize("condition", [{"If-Match": '"sha256:0"'}, {"If-None-Match": "*"}])
def test_what_makes_its_own_condition_untrue_is_not(condition: dict[str, str]) -> None:
    with dropping(1) as server, pytest.raises(ConnectionLost):
        server.client.put_if(condition, "/v1/x", {"a": 1})
    assert len(server.asked) == 1


def test_each_creation_has_a_key_of_its_own() -> None:
    with dropping(0) as server:
        for _ in range(2):
            server.client.create("/v1/x", {"a": 1})
    keys = [key for _, key, _ in server.asked]
    assert None not in keys
    assert len(set(keys)) == 2

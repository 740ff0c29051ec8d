"""A Stripe on this machine: localstripe in a process of its own, and a relay in front of it.

The relay notes what it forwards, and may be told what to do before it passes an answer on. It takes
away ``off_session`` where an intent is confirmed, which localstripe does not know there.
"""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

import msgspec

KEY: Final = "sk_test_51Entrepot"
_PATIENCE_SECONDS: Final = 20


@dataclass
class StripeRelay:
    """Where a Stripe is, and what it was asked."""

    url: str
    port: int
    """Of localstripe itself."""
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    """Method, path and ``Idempotency-Key`` of each request."""
    before_answer: Callable[[str], None] = lambda _path: None
    """Called with the path when the answer is there, and before it is passed on."""

    def confirmed(self) -> list[str]:
        """Return the keys by which intents were confirmed."""
        return [key for method, path, key in self.asked if path.endswith("/confirm")]

    def charges(self) -> list[dict[str, Any]]:
        """Return the charges that succeeded, as localstripe has them."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)) as there:
            there.request(
                "GET", "/v1/charges?limit=100", headers={"Authorization": f"Bearer {KEY}"}
            )
            answer = msgspec.json.decode(there.getresponse().read())
        return [each for each in answer["data"] if each["status"] == "succeeded"]


def _handler(relay: StripeRelay) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _relay(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            key = self.headers.get("idempotency-key", "")
            relay.asked.append((self.command, self.path, key))
            if self.path.endswith("/confirm"):
                given = [pair for pair in parse_qsl(body.decode()) if pair[0] != "off_session"]
                body = urlencode(given).encode()
            kept = ("authorization", "content-type")
            headers = {name: self.headers[name] for name in kept if name in self.headers}
            with closing(http.client.HTTPConnection("127.0.0.1", relay.port, timeout=10)) as there:
                there.request(self.command, self.path, body, headers)
                answer = there.getresponse()
                content = answer.read()
            relay.before_answer(self.path)
            self.send_response(answer.status)
            self.send_header("content-type", answer.headers.get("content-type", ""))
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = _relay  # noqa: N815 - as the base class calls them

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def stripe_relay() -> Iterator[StripeRelay]:
    """Run both until the block ends."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "localstripe", "--port", str(port), "--from-scratch"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(port, process)
        relay = StripeRelay("", port)
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(relay))
        relay.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield relay
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
    finally:
        process.kill()
        process.wait()


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    """Look until localstripe listens."""
    give_up_at = time.monotonic() + _PATIENCE_SECONDS
    while True:
        assert process.poll() is None, "localstripe has ended"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert time.monotonic() < give_up_at, "localstripe does not listen"
            time.sleep(0.05)
        else:
            return

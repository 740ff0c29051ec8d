"""Receive the code of a sign-in by a redirect to this machine (RFC 8252 §7.3)."""

from __future__ import annotations

import hmac
import html
import secrets
import socket
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Lock, Thread
from typing import Final, Self, cast
from urllib.parse import parse_qs

Address = tuple[socket.AddressFamily, str]
ADDRESSES: Final[Sequence[Address]] = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
_PATH: Final = "/callback"
_SECONDS: Final = 10
"""Time without a request after which a connection ends: browsers open some that they do not use."""
_STYLE: Final = (
    ":root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }"
    " body { max-width: 30rem; margin: 15vh auto; padding: 0 1rem }"
)


class LoopbackRedirect:
    """Listens on a loopback port for one redirect that carries the right `state`."""

    def __init__(self, addresses: Sequence[Address] = ADDRESSES) -> None:
        """Listen at once, on the first of `addresses` that this machine has.

        Raise `OSError` if it has none of them.
        """
        self.state: Final = secrets.token_urlsafe(32)
        self._lock = Lock()
        self._code: str | None = None
        self._server = _listen(addresses, self)
        self._reader, self._writer = socket.socketpair()
        host, port = self._server.server_name, self._server.server_port
        self.uri: Final = f"http://{f'[{host}]' if ':' in host else host}:{port}{_PATH}"
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        """Start answering requests."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._reader.close()
        self._writer.close()

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the code has arrived."""
        return self._reader.fileno()

    @property
    def code(self) -> str:
        """Return the code, which must have arrived."""
        assert self._code is not None, "wait until `fileno` is readable"
        return self._code

    def code_in(self, target: str) -> str | None:
        """Return the code in a redirect's target; None if it is not a redirect of this sign-in."""
        address, _, query = target.partition("?")
        fields = parse_qs(query)
        states, codes = fields.get("state", []), fields.get("code", [])
        if address not in (_PATH, self.uri) or len(states) != 1 or len(codes) != 1:
            return None
        is_ours = hmac.compare_digest(states[0].encode(), self.state.encode())
        return codes[0] if is_ours else None

    def take(self, target: str) -> bool:
        """Store the code of a valid redirect; return False if it is invalid or not the first."""
        code = self.code_in(target)
        with self._lock:
            if code is None or self._code is not None:
                return False
            self._code = code
            return True

    def announce(self) -> None:
        """Make `fileno` readable, to signal that the code has arrived."""
        self._writer.send(b".")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, family: socket.AddressFamily, host: str, redirect: LoopbackRedirect) -> None:
        self.address_family = family
        self.redirect = redirect
        super().__init__((host, 0), _Handler)

    def server_bind(self) -> None:
        """Bind; unlike the base class, do not resolve this machine's name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: the browser closed the connection."""


def _listen(addresses: Sequence[Address], redirect: LoopbackRedirect) -> _Server:
    failure = OSError()
    for family, host in addresses:
        try:
            return _Server(family, host, redirect)
        except OSError as error:
            failure = error
    raise failure


class _Handler(BaseHTTPRequestHandler):
    timeout = _SECONDS

    def do_GET(self) -> None:
        """Answer the redirect with a page, and any other request with an error page."""
        redirect = cast("_Server", self.server).redirect
        if redirect.take(self.path):
            words = "The command has received your sign-in and goes on in the terminal."
            try:
                self._show(200, "You can close this window", words)
            finally:
                redirect.announce()
        elif self.path.partition("?")[0] == _PATH:
            words = "No command waits for this sign-in, or it was used. Run 'entrepot login' again."
            self._show(400, "Not signed in", words)
        else:
            self._show(404, "Nothing here", "This address only ends a sign-in.")

    def _show(self, status: int, title: str, words: str) -> None:
        page = (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{title} · Entrepot</title><style>{_STYLE}</style></head>"
            f"<body><main><h1>{title}</h1><p>{html.escape(words)}</p></main></body></html>"
        ).encode()
        self.send_response_only(status)
        for name, value in (
            ("Content-Type", "text/html; charset=utf-8"),
            ("Content-Length", str(len(page))),
            ("Cache-Control", "no-store"),
            ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
            ("Connection", "close"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(page)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base
        """Log nothing: the URL holds the code."""

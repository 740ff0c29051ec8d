"""A TCP proxy before PostgreSQL that hides from a client what became of a COMMIT."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Literal
from urllib.parse import urlsplit, urlunsplit

COMMIT: Final = b"Q\x00\x00\x00\x0bCOMMIT\x00"
"""The message of the protocol that `cloudcore.db.postgresql` ends a change with."""

Fate = Literal["answer lost", "delayed", "client dies"]


class CommitProxy:
    """Passes connections on to a server; the next COMMIT after `arm` meets a fate.

    ``answer lost``: the server commits, and its answer is dropped with the connection. ``delayed``:
    the client's connection breaks at once, while the server gets the COMMIT only at `let_go`; at
    `forget` it loses the connection instead, and rolls the change back. ``client dies``: so, too,
    and the client is cut off for good, as if its process had died.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._server = (parts.hostname, parts.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}"))
        self._lock = threading.Lock()
        self._fate: Fate | None = None
        self._sockets: list[socket.socket] = []
        self._delayed: socket.socket | None = None
        self.struck = threading.Event()
        """Set when a COMMIT has met its fate."""
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, fate: Fate) -> None:
        """Let the next COMMIT meet a fate."""
        with self._lock:
            self._fate = fate

    def let_go(self) -> None:
        """Pass the delayed COMMIT on to the server."""
        assert self._delayed is not None
        self._delayed.sendall(COMMIT)

    def forget(self) -> None:
        """Break the server's connection of the delayed COMMIT."""
        assert self._delayed is not None
        _break(self._delayed)

    def close(self) -> None:
        """Break every connection."""
        with self._lock:
            for each in (self._listener, *self._sockets):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                with self._lock:
                    self._sockets += (client, server)
                is_mute = threading.Event()
                for pump in (self._send, self._answer):
                    threading.Thread(
                        target=pump, args=(client, server, is_mute), daemon=True
                    ).start()

    def _send(self, client: socket.socket, server: socket.socket, is_mute: threading.Event) -> None:
        """Pass on what the client sends."""
        with suppress(OSError):
            while data := client.recv(1 << 16):
                fate = self._fate_of(data)
                if fate is not None:
                    is_mute.set()
                if fate in ("delayed", "client dies"):
                    self._delayed = server
                    _break(client)
                    if fate == "client dies":
                        self._cut_off()
                    self.struck.set()
                    return
                server.sendall(data)
        if not is_mute.is_set():
            _break(server)

    def _answer(
        self, client: socket.socket, server: socket.socket, is_mute: threading.Event
    ) -> None:
        """Pass on what the server answers, unless its connection has met a fate."""
        with suppress(OSError):
            while data := server.recv(1 << 16):
                if is_mute.is_set():
                    _break(client)
                    self.struck.set()
                    return
                client.sendall(data)
        _break(client)

    def _cut_off(self) -> None:
        """Break all connections but that of the delayed COMMIT, and take no new ones."""
        with self._lock:
            for each in (self._listener, *self._sockets):
                if each is not self._delayed:
                    _break(each)

    def _fate_of(self, data: bytes) -> Fate | None:
        if data != COMMIT:
            return None
        with self._lock:
            fate, self._fate = self._fate, None
        return fate


@contextmanager
def commit_proxy(url: str) -> Iterator[CommitProxy]:
    """Run a proxy before the server of a database."""
    proxy = CommitProxy(url)
    try:
        yield proxy
    finally:
        proxy.close()


def _break(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)

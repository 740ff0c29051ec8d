"""A TCP proxy before PostgreSQL that hides from a client what became of a COMMIT or a statement."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Literal
from urllib.parse import urlsplit, urlunsplit

COMMIT: Final = b"COMMIT\0"
"""What `cloudcore.db.postgresql` ends a change with that is more than one statement.

With the byte that ends it, as BEGIN has the words READ COMMITTED.
"""

Fate = Literal["answer lost", "delayed", "all break", "client dies"]


class CommitProxy:
    """Passes connections on to a server; the next statement of a text after `arm` meets a fate.

    ``answer lost``: the server runs it, and its answer is dropped with the connection. ``delayed``:
    the client's connection breaks at once, while the server gets the statement only at `let_go`; at
    `forget` it loses the connection instead, and rolls the change back. ``all break``: so, too, and
    each other connection of that moment breaks when the client uses it next. ``client dies``: so,
    too, and the client is cut off for good, as if its process had died.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._server = (parts.hostname, parts.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}"))
        self._lock = threading.Lock()
        self._fates: list[Fate] = []
        self._text = COMMIT
        self._sockets: list[socket.socket] = []
        self._doomed: set[socket.socket] = set()
        self._delayed: list[tuple[socket.socket, bytes]] = []
        self.struck = threading.Event()
        """Set when a statement has met its fate."""
        self.answered = threading.Event()
        """Set when the server has answered a statement that met its fate."""
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def arm(self, *fates: Fate, text: bytes = COMMIT) -> None:
        """Let the next statement with a text in it meet a fate; of several, each the next one."""
        with self._lock:
            self._fates, self._text = list(fates), text

    @property
    def is_armed(self) -> bool:
        """Return True if a fate is left that no statement has met."""
        return bool(self._fates)

    def let_go(self) -> None:
        """Pass the delayed statement on to the server."""
        ((server, data),) = self._delayed
        server.sendall(data)

    def forget(self) -> None:
        """Break the server's connections of the delayed statements."""
        assert self._delayed
        for server, _ in self._delayed:
            _break(server)

    def close(self) -> None:
        """Break every connection."""
        _break(self._listener)
        self._accepting.join()
        with self._lock:
            for each in (self._listener, *self._sockets):
                _break(each)
                each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._server)
                except OSError:
                    client.close()
                    raise
                with self._lock:
                    self._sockets += (client, server)
                is_mute = threading.Event()
                for pump in (self._send, self._answer):
                    threading.Thread(
                        target=pump, args=(client, server, is_mute), daemon=True
                    ).start()

    def _send(self, client: socket.socket, server: socket.socket, is_mute: threading.Event) -> None:
        """Pass on what the client sends."""
        prepared: dict[bytes, bytes] = {}
        with suppress(OSError):
            while data := client.recv(1 << 16):
                if client in self._doomed:
                    break
                fate = self._fate_of(_statement(data, prepared))
                if fate is not None:
                    is_mute.set()
                if fate not in (None, "answer lost"):
                    self._delayed.append((server, data))
                    if fate == "all break":
                        self._doomed.update(self._sockets)
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
                    self.answered.set()
                    return
                client.sendall(data)
        _break(client)

    def _cut_off(self) -> None:
        """Break all connections but those of delayed statements, and take no new ones."""
        delayed = [server for server, _ in self._delayed]
        with self._lock:
            for each in (self._listener, *self._sockets):
                if each not in delayed:
                    _break(each)

    def _fate_of(self, statement: bytes) -> Fate | None:
        with self._lock:
            return self._fates.pop(0) if self._fates and self._text in statement else None


@contextmanager
def commit_proxy(url: str) -> Iterator[CommitProxy]:
    """Run a proxy before the server of a database."""
    proxy = CommitProxy(url)
    try:
        yield proxy
    finally:
        proxy.close()


def _statement(data: bytes, prepared: dict[bytes, bytes]) -> bytes:
    """Return the text of the statement that a message runs, or nothing.

    Note in `prepared` which one it prepares, by name. psycopg sends each message by itself, and
    waits for its answer; those of the tests come in one piece.
    """
    kind, rest = data[:1], data[5:]
    if kind == b"Q":
        return rest
    if kind == b"P":
        name, text, _ = rest.split(b"\0", 2)
        prepared[name] = text
    if kind == b"B":
        _portal, name, _ = rest.split(b"\0", 2)
        return prepared.get(name, b"")
    return b""


def _break(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)

"""A small ASGI application and a way to serve and to question it, for tests of the server."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import http.client
import io
import os
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, cast
from urllib.parse import parse_qs

import uvicorn
from uvicorn.server import ServerState

from cloudcore.errors import Unavailable
from cloudcore.serving.asgi import (
    BodyStart,
    Message,
    Receive,
    Scope,
    Send,
    read_small_body,
    receive_into,
    replay_body_start,
)
from cloudcore.serving.dispatch import Application
from cloudcore.serving.http.protocol import HttpProtocol
from cloudcore.serving.http.request_cycle import RequestCycle
from cloudcore.serving.http.worker import ServerWorker
from cloudcore.serving.limits import ServerLimits
from cloudcore.serving.planes import Planes
from cloudcore.serving.processes.server import http_protocol
from cloudcore.serving.request_record import RequestRecord
from cloudcore.serving.tls.files import ServedTls, load_tls
from cloudcore.serving.tls.paths import TlsFiles
from cloudcore.serving.tls.validation import Validations
from registry.composition.planes import PLANES
from tests.certificates import self_signed

Headers = list[tuple[bytes, bytes]]


async def answer(send: Send, status: int, body: bytes, headers: Headers | None = None) -> None:
    """Send a whole response."""
    length = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers or length})
    await send({"type": "http.response.body", "body": body})


@dataclass
class SampleApplication:
    """Answers by the last part of the path; notes what tests want to know."""

    file: Path | None = None
    finished: list[bool] = field(default_factory=list)
    units: list[int] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)
    disconnected: threading.Event = field(default_factory=threading.Event)
    returned: threading.Event = field(default_factory=threading.Event)
    started: threading.Event = field(default_factory=threading.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Route a request."""
        name = scope["path"].rsplit("/", 1)[-1]
        route = getattr(self, f"get_{name}", self.get_root)
        try:
            await route(scope, receive, send)
        finally:
            self.returned.set()

    async def get_root(self, scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, 200, scope["raw_path"] + b"?" + scope["query_string"])

    async def get_echo(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body in messages and answer with it."""
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.disconnected.set()
                return
            body += message["body"]
            more = message["more_body"]
        await answer(send, 200, body)

    async def get_sink(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have the body moved to a hash by a bulk thread, and answer with its digest."""
        digest = hashlib.sha256()

        def sink(part: memoryview) -> None:
            self.units.append(len(part))
            digest.update(part)

        def finish(complete: bool) -> tuple[bool, str]:
            self.finished.append(complete)
            return complete, threading.current_thread().name

        complete, thread = await receive_into(scope, receive, sink, finish)
        status = 201 if complete else 400
        await answer(send, status, f"{digest.hexdigest()} {thread}".encode())

    async def get_again(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the start of a body, then have all of it moved, once as much as is sent is here."""
        begun = await read_small_body(receive, 4)
        assert isinstance(begun, BodyStart)
        scope, receive = replay_body_start(scope, receive, begun)
        cycle = scope["extensions"]["entrepot.held_body"]
        self.started.set()
        while not (cycle.body.framing.complete or cycle.body.failure):  # noqa: ASYNC110
            await asyncio.sleep(0)
        content = bytearray()
        complete = await receive_into(scope, receive, content.extend, bool)
        await answer(send, 201 if complete else 400, bytes(content))

    async def get_ignored(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Give up without an answer when the body does not arrive whole."""
        await receive_into(scope, receive, lambda _: None, self.finished.append)

    async def get_badsink(self, scope: Scope, receive: Receive, send: Send) -> None:
        def sink(part: memoryview) -> None:
            raise KeyError("full")

        try:
            await receive_into(scope, receive, sink, self.finished.append)
        except KeyError as error:
            await answer(send, 507, str(error).encode())

    async def get_refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer without reading the body."""
        await answer(send, 401, b"no")

    async def get_file(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a piece of the file through ``http.response.zerocopysend``."""
        query = parse_qs(scope["query_string"].decode())
        assert self.file is not None
        offset = int(query.get("offset", ["0"])[0])
        count = int(query.get("count", [str(self.file.stat().st_size - offset)])[0])
        headers = [] if "chunked" in query else [(b"content-length", b"%d" % count)]
        descriptor = os.open(self.file, os.O_RDONLY)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            piece: Message = {"type": "http.response.zerocopysend", "file": descriptor}
            more = "chunked" in query
            await send({**piece, "offset": offset, "count": count, "more_body": more})
            if more:
                await send({"type": "http.response.body", "body": b"the end"})
        finally:
            os.close(descriptor)

    async def get_parts(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a piece of the file through ``entrepot.send_parts``, made in parts of ``unit``.

        The first ``begun`` bytes are sent before, as a part of a body.
        """
        query = parse_qs(scope["query_string"].decode())
        assert self.file is not None
        content = self.file.read_bytes()
        count = int(query.get("count", [str(len(content))])[0])
        unit = int(query.get("unit", ["1048576"])[0])
        fails_at = int(query.get("fails", [str(count)])[0])
        begun = int(query.get("begun", ["0"])[0])

        def parts(skipped: int) -> Iterator[memoryview]:
            self.begun.append(skipped)
            skipped += begun
            self.threads.add(threading.current_thread().name.rpartition("-")[0])
            buffer = memoryview(bytearray(unit))
            for offset in range(skipped, count, unit):
                if offset >= fails_at:
                    raise ValueError("damaged")
                part = buffer[: min(unit, count - offset)]
                part[:] = content[offset : offset + len(part)]
                yield part

        headers = [(b"content-length", b"%d" % count)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if begun:
            body = content[:begun]
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "entrepot.send_parts", "parts": parts, "count": count - begun})

    async def get_stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a body of unknown length, larger than any socket buffer if asked to."""
        count = int(scope["query_string"] or b"3")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(count):
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def get_crash(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ValueError("a secret")

    async def get_silence(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return without a response."""

    async def get_late(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Crash when half the response is out."""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError("a secret")

    async def get_cut(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Learn that there is no more when half the response is out."""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise Unavailable("the upstream has gone")

    async def get_short(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Promise more than is sent."""
        await answer(send, 200, b"abc", [(b"content-length", b"10")])

    async def get_injected(self, scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, 200, b"", [(b"location", b"/a\r\nset-cookie: evil=1")])

    async def get_empty(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a body with a status that allows none."""
        await answer(send, int(scope["query_string"]), b"not allowed")

    async def get_watch(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait for the client to leave."""
        await receive()
        message = await receive()
        assert message["type"] == "http.disconnect"
        self.disconnected.set()

    async def get_slow(self, scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(float(scope["query_string"]))
        await answer(send, 200, b"done")

    async def get_busy(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Do something else before the body is taken as the query says."""
        self.started.set()
        await asyncio.sleep(0.1)
        await getattr(self, f"get_{scope['query_string'].decode()}")(scope, receive, send)


@dataclass
class RunningServer:
    """A server on a free port, in a thread of this process."""

    app: SampleApplication
    port: int
    records: list[RequestRecord]
    worker: ServerWorker
    state: ServerState
    trust: ssl.SSLContext | None = None
    """How a client of TLS connects."""

    @property
    def server_connections(self) -> int:
        """Return how many connections the server has."""
        return len(self.state.connections)

    @property
    def connections(self) -> set[HttpProtocol]:
        """Return the connections the server has."""
        return cast("set[HttpProtocol]", self.state.connections)

    @property
    def cycle(self) -> RequestCycle:
        """Return what is under way on the only connection."""
        (connection,) = self.connections
        assert connection.cycle is not None
        return connection.cycle

    def sweep(self, now: float) -> None:
        """Have the time limits enforced as if the monotonic clock said `now`."""
        connection = next(iter(tuple(self.connections)), None)
        if connection is None:  # it has ended meanwhile
            return
        swept = threading.Event()

        def sweep() -> None:
            self.worker.sweep(now, self.connections)
            swept.set()

        connection.loop.call_soon_threadsafe(sweep)
        assert swept.wait(60)

    def connect(self, timeout: float = 60) -> Client:
        """Open a connection, of TLS if the server speaks it."""
        return Client(self.shake_hands(self.connect_plain(timeout)))

    def connect_plain(self, timeout: float = 60) -> socket.socket:
        """Open a connection, and send nothing."""
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def shake_hands(self, sock: socket.socket) -> socket.socket:
        """Return a connection of TLS over `sock`, or the socket itself if the server is plain."""
        return self.trust.wrap_socket(sock, server_hostname="localhost") if self.trust else sock


class Client:
    """A raw connection: what is sent is up to the test, down to the byte."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._reader = sock.makefile("rb")

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.sock.sendall(data)

    def response(self, method: str = "GET") -> tuple[http.client.HTTPResponse, bytes]:
        """Read one response and its body."""
        response = http.client.HTTPResponse(_Source(self._reader), method=method)  # type: ignore[arg-type]
        response.begin()
        return response, response.read()

    def ask(self, data: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        """Send a request and read the response."""
        self.send(data)
        return self.response(data.split(b" ", 1)[0].decode("latin-1"))

    def response_head(self) -> http.client.HTTPResponse:
        """Read the head of a response."""
        response = http.client.HTTPResponse(_Source(self._reader))  # type: ignore[arg-type]
        response.begin()
        return response

    def read(self, count: int) -> bytes:
        """Read `count` bytes, or up to the end."""
        return self._reader.read(count)

    def line(self) -> bytes:
        """Read one line."""
        return self._reader.readline()

    def rest(self) -> bytes:
        """Read until the server closes."""
        return self._reader.read()

    def is_closed(self) -> bool:
        """Tell whether the server closes the connection, now or soon, without another byte."""
        try:
            return self._reader.read(1) == b""
        except ConnectionResetError:
            return True

    def end_sending(self) -> None:
        """Shut down this side of the connection, below any TLS."""
        socket.socket.shutdown(self.sock, socket.SHUT_WR)

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()
        self.sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Source:
    """What HTTPResponse takes for a socket; keeps bytes of the next response for later."""

    def __init__(self, reader: io.BufferedIOBase) -> None:
        self._reader = reader

    def makefile(self, _mode: str) -> io.BufferedIOBase:
        return _Uncloseable(self._reader)  # type: ignore[return-value]


class _Uncloseable:
    def __init__(self, reader: io.BufferedIOBase) -> None:
        self._reader = reader

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - delegates everything
        return getattr(self._reader, name)

    def close(self) -> None:
        """Keep the connection."""


@functools.cache
def made_certificate() -> tuple[ServedTls, ssl.SSLContext]:
    """Return a certificate of ``localhost`` to serve, and a client's settings that trust it."""
    with tempfile.TemporaryDirectory() as folder:
        files = TlsFiles(*self_signed(Path(folder), "localhost"))
        served = ServedTls(files, load_tls(files, time.time()))
        return served, ssl.create_default_context(cafile=files.certificate)


@contextlib.contextmanager
def serving(
    app: SampleApplication | None = None,
    limits: ServerLimits | None = None,
    loop: str = "uvloop",
    application: Application | None = None,
    planes: Planes = PLANES,
    validations: Validations | None = None,
) -> Iterator[RunningServer]:
    """Serve `app` on our protocol, in uvicorn's own server, until the block ends.

    An `application` is served in its place, from its start to its stop. A `loop` that
    ends in ``+tls`` serves TLS with a certificate of ``localhost``, and to authorities the
    `validations`.
    """
    app = app or SampleApplication()
    records: list[RequestRecord] = []
    loop, _, tls = loop.partition("+")
    served, trust = made_certificate() if tls else (None, None)
    if served is not None:
        served.validations = validations
    worker = ServerWorker(planes, limits, records.append, tls=served)
    config = uvicorn.Config(
        application or app,
        http=http_protocol(worker),
        loop=loop,
        lifespan="on" if application else "off",
        log_config=None,
        ws="none",
    )
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        yield RunningServer(
            app, listener.getsockname()[1], records, worker, server.server_state, trust
        )
    finally:
        server.should_exit = True
        thread.join(60)
        worker.close()
        assert not thread.is_alive(), "the server did not stop"

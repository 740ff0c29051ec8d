"""A data plane behind our own HTTP server, in this process, that keeps answers; and its client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Final, cast

from uvicorn.config import Config
from uvicorn.server import ServerState

from cloudcore.serving.asgi import Receive, Scope, Send
from cloudcore.serving.http.protocol import HttpProtocol
from cloudcore.serving.http.worker import Observer, ServerWorker
from cloudcore.serving.kept_answers import KeptAnswers
from cloudcore.serving.limits import ServerLimits
from cloudcore.serving.request_record import RequestRecord
from registry.composition.planes import PLANES, dispatcher
from registry.distribution.app import DataPlane
from registry.services.context import ServiceContext
from tests.inprocess import Answer, Body, Client, check_form

KEPT_BYTES: Final = 4 * 1024**2
_READS: Final = ("GET", "HEAD")


class WireClient(Client):
    """Asks like `Client`, over connections; a body that is no bytes goes in chunks.

    It asks each thing that it reads three times, and returns the last answer: the first may be
    kept, the second confirmed, and the third given at once.
    """

    def __init__(
        self, app: DataPlane, port: int, kept: KeptAnswers | None, records: list[RequestRecord]
    ) -> None:
        super().__init__(app)
        self.kept = kept
        self.records = records
        """Of all requests, as the access log gets them."""
        self._port = port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def request(
        self,
        method: str,
        target: str | bytes,
        body: Body = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request, or three, and return the last answer."""
        if method in _READS:
            for _ in range(2):
                await self.ask(method, target, body, headers)
        return await self.ask(method, target, body, headers)

    async def ask(
        self,
        method: str,
        target: str | bytes,
        body: Body = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request and return its answer."""
        raw = target.encode() if isinstance(target, str) else target
        fields = {"host": "registry.example", **(headers or {})}
        parts = [body] if isinstance(body, bytes) and body else []
        if isinstance(body, list):
            parts = body
        elif not isinstance(body, bytes):
            parts = [part async for part in body]
        if body:
            fields["content-length"] = str(sum(map(len, parts)))
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        head = method.encode() + b" " + raw + b" HTTP/1.1\r\n" + lines.encode("latin-1") + b"\r\n"
        reader, writer = self._idle.pop() if self._idle else await self.connect()
        writer.write(head)  # alone, as the head of a kept answer comes
        writer.writelines(parts)
        answer = await _read_answer(reader, method)
        if answer.headers.get("connection") == "close":
            writer.close()
        else:
            self._idle.append((reader, writer))
        check_form(method, answer)
        assert answer.status != 500, answer.body
        return answer

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a new connection."""
        return await asyncio.open_connection("127.0.0.1", self._port)

    def close(self) -> None:
        """Close the connections."""
        for _, writer in self._idle:
            writer.close()


async def _read_answer(reader: asyncio.StreamReader, method: str) -> Answer:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    if head == "HTTP/1.1 100 Continue\r\n\r\n":
        return await _read_answer(reader, method)
    status, *lines = head.split("\r\n")[:-2]
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    has_body = method != "HEAD" and "content-length" in headers and " 304 " not in status
    body = await reader.readexactly(int(headers["content-length"])) if has_body else b""
    return Answer(int(status.split()[1]), headers, body)


@asynccontextmanager
async def wired(
    app: DataPlane, ctx: ServiceContext, *observers: Observer, keeps: bool = True
) -> AsyncIterator[WireClient]:
    """Serve a data plane on a socket as a worker does, and return a client of it."""
    records: list[RequestRecord] = []
    worker = ServerWorker(PLANES, ServerLimits(), records.append, *observers)
    if keeps:
        worker.kept = KeptAnswers(ctx.database, ctx.clock, KEPT_BYTES)
    config = cast("Config", SimpleNamespace(loaded_app=dispatcher(app, _nothing)))
    loop = asyncio.get_running_loop()
    state = ServerState()
    connect = partial(HttpProtocol, worker, config, state, {})
    server = await loop.create_server(connect, "127.0.0.1", 0)
    client = WireClient(app, server.sockets[0].getsockname()[1], worker.kept, records)
    try:
        yield client
    finally:
        client.close()
        server.close()
        for connection in tuple(cast("set[HttpProtocol]", state.connections)):
            connection.abort()
        await server.wait_closed()
        worker.close()


async def _nothing(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise AssertionError("only the data plane is asked")

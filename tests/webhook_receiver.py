"""An HTTP endpoint on a loopback port that notes what is posted, and answers as a test tells it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from tests.waiting import close_server, turns


class Received(NamedTuple):
    """One request."""

    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def envelope(self) -> dict[str, Any]:
        """Return the body as JSON."""
        found: dict[str, Any] = msgspec.json.decode(self.body)
        return found


Answer = bytes | asyncio.Event
"""What is sent back, or what is waited for before the connection is closed."""
OK = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"


def status(code: int, *headers: str) -> bytes:
    """Return an answer with a status and headers."""
    lines = [f"HTTP/1.1 {code} X", "Content-Length: 0", "Connection: close", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


@dataclass
class Receiver:
    """The endpoint."""

    url: str = ""
    got: list[Received] = field(default_factory=list)
    answer: Callable[[Received], Answer] = lambda _got: OK
    under_way: set[asyncio.Task[Any]] = field(default_factory=set)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    def of(self, kind: str) -> list[Received]:
        """Return the requests whose envelope has a type."""
        return [each for each in self.got if each.envelope.get("type") == kind]

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one request, in a task of its own."""
        self.writers.append(writer)  # also if the task is cancelled before it begins
        task = asyncio.create_task(self._serve(reader, writer))
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._take(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        pairs = (line.partition(":")[::2] for line in lines)
        headers = {name.lower(): value.strip() for name, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        received = Received(first.split(" ")[1], headers, body)
        self.got.append(received)
        answer = self.answer(received)
        if isinstance(answer, asyncio.Event):
            await answer.wait()
        else:
            writer.write(answer)
            await writer.drain()

    async def close(self) -> None:
        """End the connections, also those that wait."""
        for task in tuple(self.under_way):
            task.cancel()
        await asyncio.gather(*self.under_way, return_exceptions=True)
        for writer in self.writers:  # what nobody reads would keep its socket open
            writer.transport.abort()
        await turns()


@asynccontextmanager
async def webhook_receiver(address: str = "127.0.0.1") -> AsyncIterator[Receiver]:
    """Serve an endpoint during the block."""
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, address, 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield receiver
    finally:
        await close_server(server)
        await receiver.close()

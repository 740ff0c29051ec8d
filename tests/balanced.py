"""Load balancers for tests: a driver in a folder, servers behind it, and clients before it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import random
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self, TypeVar

from cloudcore.loadbalancer.driver import (
    BackendPlan,
    HealthPlan,
    ListenerPlan,
    ProxyPlan,
    ReplicaState,
    TargetPlan,
)
from cloudcore.loadbalancer.embedded import EmbeddedDriver
from cloudcore.loadbalancer.haproxy import HaproxyDriver
from cloudcore.loadbalancer.replicas import Replicas
from tests.fault.balancer_to_death import BALANCER as BALANCER  # noqa: PLC0414 - for tests
from tests.tools import require_tool
from tests.waiting import close_server, turns

T = TypeVar("T")
_CLONE_NEWNET: Final = 0x40000000
_LOOK_SECONDS: Final = 0.01
"""Between two looks at what other processes do, which have the processors meanwhile."""
GET: Final = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
QUICK = HealthPlan("http", "/health?a=%20$b'c", 1, 1, 1, 1)


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]


class Server:
    """A server of HTTP/1.1 that tells its name, keeps connections and what it was sent.

    With `serve`, it does that with each connection instead.
    """

    def __init__(self, name: str, serve: Serve | None = None) -> None:
        self.name = name
        self._serve_one = serve or self._answer_all
        self.heads: list[bytes] = []
        self.is_well = True
        self.go = asyncio.Event()
        """Requests for `/slow` wait for it."""
        self.is_waited_for = asyncio.Event()
        self.port = 0
        self.path: Path | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, path: Path | None = None, netns: Path | None = None) -> Self:
        """Listen on a port of the loopback, the same as before, or at a path."""
        self.path = path
        if netns is not None:
            self._server = await asyncio.start_server(
                self._serve,
                sock=in_namespace(netns, lambda: socket.create_server(("127.0.0.1", 0))),
            )
            self.port = self._server.sockets[0].getsockname()[1]
        elif path is None:
            self._server = await asyncio.start_server(
                self._serve, "127.0.0.1", self.port, reuse_address=True
            )
            self.port = self._server.sockets[0].getsockname()[1]
        else:
            self._server = await asyncio.start_unix_server(self._serve, path)
        return self

    async def die(self) -> None:
        """End, with all connections."""
        assert self._server is not None
        await close_server(self._server)
        for serving in self._connections:
            serving.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await turns()

    def target(self, *, is_draining: bool = False) -> TargetPlan:
        """Return the target that this is."""
        if self.path is not None:
            return TargetPlan(self.name, socket=str(self.path), is_draining=is_draining)
        return TargetPlan(self.name, "127.0.0.1", self.port, is_draining=is_draining)

    @property
    def requests(self) -> list[bytes]:
        """Return the heads of what was no health check."""
        return [head for head in self.heads if not head.startswith(b"GET /health")]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.current_task()
        assert serving is not None
        self._connections.add(serving)
        serving.add_done_callback(self._connections.discard)
        try:
            if self._server is not None and self._server.is_serving():
                await self._serve_one(reader, writer)  # else it was accepted just before the end
        except (OSError, EOFError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            await self._answer(head, reader, writer)

    async def _answer(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        body = self.name.encode()
        if b"transfer-encoding: chunked" in head.lower():
            body = await _read_chunks(reader)
        elif length := _length(head):
            body = await reader.readexactly(length)
        status = b"200 OK"
        if head.startswith(b"GET /health"):
            status = b"204 No Content" if self.is_well else b"503 Service Unavailable"
            body = b""
        if b" /slow " in head:
            self.is_waited_for.set()
            await self.go.wait()
        framing = b"" if status[:3] == b"204" else b"Content-Length: %d\r\n" % len(body)
        content = b"" if head.startswith(b"HEAD") else body
        writer.write(b"HTTP/1.1 %b\r\nX-Served-By: %b\r\n%b\r\n%b" % (
            status, self.name.encode(), framing, content,
        ))  # fmt: skip
        await writer.drain()


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    return 0


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    whole = b""
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        whole += await reader.readexactly(size)
        assert await reader.readexactly(2) == b"\r\n"
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass  # a trailer
    return whole


class Answer:
    """What a client was answered."""

    def __init__(self, head: bytes, body: bytes) -> None:
        self.head = head
        self.status = int(head[9:12])
        self.body = body


class Client:
    """One connection to a balancer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, request: bytes = GET) -> Answer:
        self.writer.write(request)
        return await self.read(has_body=not request.startswith(b"HEAD"))

    async def read(self, *, has_body: bool = True) -> Answer:
        head = await self.reader.readuntil(b"\r\n\r\n")
        body = b""
        if has_body and b"transfer-encoding: chunked" in head.lower():
            body = await _read_chunks(self.reader)
        elif has_body:
            body = await self.reader.readexactly(_length(head))
        return Answer(head, body)

    async def rest(self) -> bytes:
        """Return what comes until the connection ends."""
        whole = b""
        with contextlib.suppress(ConnectionError):
            while part := await self.reader.read(65536):
                whole += part
        return whole


class Balanced:
    """A driver in a folder, and an address of the loopback that nobody else has."""

    def __init__(self, folder: Path, kind: type[Replicas], *, head_seconds: int = 10) -> None:
        # Paths of sockets in it are longer than one can be (107 bytes, unix(7)).
        self.folder = folder / "balancers".ljust(110, "-")
        self.driver = kind(self.folder, drain_seconds=5, head_seconds=head_seconds)
        self._writers: list[asyncio.StreamWriter] = []
        random_byte = random.SystemRandom().randint
        self.vip = f"127.{random_byte(1, 254)}.{random_byte(0, 255)}.{random_byte(1, 254)}"

    def plan(
        self,
        *servers: Server,
        health: HealthPlan = QUICK,
        listeners: Sequence[ListenerPlan] = (ListenerPlan(8080, "http", "web"),),
        draining: Sequence[Server] = (),
    ) -> ProxyPlan:
        targets = tuple(one.target(is_draining=one in draining) for one in servers)
        protocol = "tcp" if listeners[0].protocol == "tcp" else "http"
        web = BackendPlan("web", protocol, health, targets)  # type: ignore[arg-type]
        return ProxyPlan(BALANCER, self.vip, tuple(listeners), (web,))

    async def apply(
        self,
        plan: ProxyPlan,
        *replicas: int,
        certificates: Mapping[str, bytes] | None = None,
        netns: Path | None = None,
    ) -> None:
        for replica in replicas or (0,):
            await self.driver.apply(plan, replica, certificates or {}, netns)

    async def stop(self, *replicas: int) -> None:
        for replica in replicas or (0,):
            await self.driver.stop(BALANCER, replica)

    async def seen(self) -> Sequence[ReplicaState]:
        return await self.driver.seen(BALANCER)

    async def until(self, holds: Callable[[Sequence[ReplicaState]], bool]) -> None:
        """Return when what is seen is so; the test's time is the limit."""
        while not holds(await self.seen()):  # noqa: ASYNC110 - of another process
            await asyncio.sleep(_LOOK_SECONDS)

    async def connect(
        self, port: int = 8080, tls: ssl.SSLContext | None = None, netns: Path | None = None
    ) -> Client:
        name = "localhost" if tls else None
        if netns is None:
            opened = await asyncio.open_connection(self.vip, port, ssl=tls, server_hostname=name)
        else:
            made = in_namespace(netns, socket.socket)
            made.settimeout(0)
            try:
                await asyncio.get_running_loop().sock_connect(made, (self.vip, port))
            except BaseException:  # also where the one who asks is ended
                made.close()
                raise
            opened = await asyncio.open_connection(sock=made, ssl=tls, server_hostname=name)
        self._writers.append(opened[1])
        return Client(*opened)

    async def ask(
        self,
        request: bytes = GET,
        port: int = 8080,
        tls: ssl.SSLContext | None = None,
        netns: Path | None = None,
    ) -> Answer:
        """Return the answer to a request over a connection of its own."""
        client = await self.connect(port, tls, netns)
        try:
            return await client.ask(request)
        finally:
            client.writer.close()

    async def ask_slowly(
        self, server: Server | None = None, port: int = 8080, tls: ssl.SSLContext | None = None
    ) -> Client:
        """Send a request that waits for `go` of its server; return when `server` has it."""
        client = await self.connect(port, tls)
        client.writer.write(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        if server is not None:
            await server.is_waited_for.wait()
        return client

    def processes(self) -> list[int]:
        """Return the processes that work in the folder."""
        found = []
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if process.name.isdecimal() and str(self.folder) in str(
                    (process / "cwd").readlink()
                ):
                    found.append(int(process.name))
        return found

    def program(self, process: int) -> str:
        """Return the name of a process's program."""
        return Path(f"/proc/{process}/exe").readlink().name

    async def close(self) -> None:
        """End all clients, and stop what a failed test has left."""
        for writer in self._writers:
            writer.close()
        for seen in await self.seen():
            await self.stop(seen.replica)
        for writer in self._writers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()


class Loop:
    """Clients that ask again and again, each time over a new connection, and what failed."""

    def __init__(self, ask: Callable[[], Coroutine[None, None, Answer]], clients: int = 3) -> None:
        self.failed: list[object] = []
        self.served: list[bytes] = []
        self._ask = ask
        self._clients = clients
        self._is_over = False
        self._asked = asyncio.Condition()

    async def more(self, count: int = 30) -> None:
        """Return after so many further answers."""
        wanted = len(self.served) + len(self.failed) + count
        async with self._asked:
            await self._asked.wait_for(lambda: len(self.served) + len(self.failed) >= wanted)

    async def _run(self) -> None:
        while not self._is_over:
            try:
                answer = await self._ask()
                if answer.status == 200:
                    self.served.append(answer.body)
                else:
                    self.failed.append(answer.head)
            except (OSError, EOFError) as error:
                self.failed.append(error)
            async with self._asked:
                self._asked.notify_all()

    async def __aenter__(self) -> Self:
        self._running = [asyncio.create_task(self._run()) for _ in range(self._clients)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_over = True  # what is asked is answered: a client that is cut off leaks its socket
        await asyncio.gather(*self._running)


def kind_of(name: str) -> type[Replicas]:
    """Return the driver of a name, or skip the test if its program is not there."""
    if name == "haproxy":
        require_tool("haproxy")
        return HaproxyDriver
    return EmbeddedDriver


@contextlib.asynccontextmanager
async def balanced(folder: Path, name: str, *, head_seconds: int = 10) -> AsyncIterator[Balanced]:
    """Give a balancer of a driver; stop at the end what a failed test has left."""
    made = Balanced(folder, kind_of(name), head_seconds=head_seconds)
    try:
        yield made
    finally:
        await made.close()


def in_namespace(netns: Path, make: Callable[[], T]) -> T:
    """Return what `make` makes in a network namespace; sockets stay there."""

    def enter_and_make() -> T:
        with netns.open("rb") as opened:
            assert ctypes.CDLL(None, use_errno=True).setns(opened.fileno(), _CLONE_NEWNET) == 0
        return make()

    with ThreadPoolExecutor(1) as thread:  # which ends, and nothing else is there
        return thread.submit(enter_and_make).result()

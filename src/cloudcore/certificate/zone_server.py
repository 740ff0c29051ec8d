"""The name server of the platform's zone: UDP and TCP, in every worker."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from ipaddress import IPv4Address, ip_address
from typing import Final, cast

from cloudcore.certificate.zone_answers import MOST_QUERY_BYTES, Answerer
from cloudcore.errors import Unavailable

MOST_AT_ONCE: Final = 100
"""Queries of a worker that wait for the database; others are dropped, and come again."""
MOST_CONNECTIONS: Final = 50
MOST_OF_ONE: Final = 10
"""Connections of one source: an address, or the half of an IPv6 address that is a network's."""
_IDLE_SECONDS: Final = 10.0
_MOST_QUERIES: Final = 100
"""Of one connection."""

_log = logging.getLogger(__name__)


@asynccontextmanager
async def serving_zone(answerer: Answerer, host: str, port: int) -> AsyncIterator[int]:
    """Answer on an address; yield the port, which several processes may share.

    Raise `OSError` if the address cannot be had.
    """
    loop = asyncio.get_running_loop()
    turns = Turns(answerer)
    connections = Connections(turns)
    # First that of TCP: if any port will do, connections to others may use the same number.
    server = await asyncio.start_server(
        connections.serve, host, port, reuse_port=True, limit=MOST_QUERY_BYTES
    )
    async with server:
        bound: int = server.sockets[0].getsockname()[1]
        transport, _ = await loop.create_datagram_endpoint(
            lambda: Datagrams(turns), (host, bound), reuse_port=True
        )
        try:
            yield bound
        finally:
            connections.close()
            transport.close()
            turns.cancel()


class Turns:
    """Answers some queries at once."""

    def __init__(self, answerer: Answerer) -> None:
        self._answerer = answerer
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, datagrams: Datagrams, data: bytes, address: object) -> None:
        """Answer a datagram soon, or drop it."""
        if len(self._tasks) < MOST_AT_ONCE:
            task = asyncio.create_task(self._answer(datagrams, data, address))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        """Answer nothing more."""
        for task in self._tasks:
            task.cancel()

    async def answer(self, data: bytes, *, over_tcp: bool) -> bytes | None:
        """Return the answer, or None while the database cannot be asked."""
        try:
            return await self._answerer.answer(data, over_tcp=over_tcp)
        except Unavailable as error:
            _log.warning("a query of the zone was not answered: %s", error)
            return None

    async def _answer(self, datagrams: Datagrams, data: bytes, address: object) -> None:
        found = await self.answer(data, over_tcp=False)
        if found is not None:
            datagrams.send(found, address)


class Datagrams(asyncio.DatagramProtocol):
    """Takes queries, and sends answers while the socket takes them."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._is_full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note what sends."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def pause_writing(self) -> None:
        """Drop answers: the socket takes no more."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Send answers again."""
        self._is_full = False

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Take a query."""
        self._turns.take(self, data, addr)

    def send(self, data: bytes, address: object) -> None:
        """Send an answer, unless too many wait."""
        if not self._is_full:
            self._transport.sendto(data, cast("tuple[str, int]", address))


class Connections:
    """Answers over TCP, where each message has its length before it (RFC 1035 §4.2.2)."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._writers: set[asyncio.StreamWriter] = set()
        self._of_source = Counter[str]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the queries of a connection, until it is idle or has had its share."""
        source = _source(writer)
        is_taken = len(self._writers) < MOST_CONNECTIONS and self._of_source[source] < MOST_OF_ONE
        if source and is_taken:
            self._writers.add(writer)
            self._of_source[source] += 1
            with suppress(OSError, EOFError, TimeoutError):
                for _ in range(_MOST_QUERIES):
                    if not await self._serve_one(reader, writer):
                        break
            self._writers.discard(writer)
            self._of_source -= Counter({source: 1})
        writer.close()

    def close(self) -> None:
        """Cut all connections."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        async with asyncio.timeout(_IDLE_SECONDS):
            size = int.from_bytes(await reader.readexactly(2))
            if size > MOST_QUERY_BYTES:
                return False
            answer = await self._turns.answer(await reader.readexactly(size), over_tcp=True)
            if answer is None:
                return False
            writer.write(len(answer).to_bytes(2) + answer)
            await writer.drain()
        return True


def _source(writer: asyncio.StreamWriter) -> str:
    """Return where a connection is from; empty if it has ended already."""
    peer = writer.get_extra_info("peername")
    if peer is None:
        return ""
    address = ip_address(peer[0].partition("%")[0])
    if isinstance(address, IPv4Address):
        return str(address)
    return str(address.ipv4_mapped or int(address) >> 64)

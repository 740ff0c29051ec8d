"""The name server of the zone on its sockets: what dig sees, and what it does not put up with."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any, Final

import dns.asyncquery
import dns.message
import dns.rcode
import pytest
import uvloop

from cloudcore.certificate import zone_server
from cloudcore.certificate.zone_server import Answerer, Zone, serving_zone
from cloudcore.errors import Unavailable
from tests.tools import require_tool

ZONE: Final = "cloud.example.com"
TARGET: Final = f"1.0198c2f0-1111-7222-8333-444455556666.acme.{ZONE}."


class Texts:
    """The database of a test."""

    def __init__(self) -> None:
        self.values = ["one", "two"]
        self.failure: Exception | None = None
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.asked = 0

    async def find(self, _name: str) -> Sequence[str]:
        self.asked += 1
        await self.goes_on.wait()
        if self.failure is not None:
            raise self.failure
        return self.values


QUERY: Final = dns.message.make_query(TARGET, "TXT")
FRAMED: Final = len(QUERY.to_wire()).to_bytes(2) + QUERY.to_wire()


@asynccontextmanager
async def served(texts: Texts, port: int = 0) -> AsyncIterator[int]:
    answerer = Answerer(Zone(ZONE, ("ns1.example.net",)), texts.find)
    async with serving_zone(answerer, "127.0.0.1", port) as taken:
        yield taken


async def dig(port: int, *words: str) -> str:
    child = await asyncio.create_subprocess_exec(
        *(require_tool("dig"), "@127.0.0.1", "-p", str(port), "+tries=1", "+time=30", *words),
        stdout=asyncio.subprocess.PIPE,
    )
    shown, _ = await child.communicate()
    return shown.decode()


@pytest.mark.client("dig")
async def test_dig_reads_the_zone_over_udp_and_tcp() -> None:
    async with served(Texts()) as port:
        for way in ("+notcp", "+tcp"):
            assert set((await dig(port, way, "+short", TARGET, "TXT")).split()) == {
                '"one"',
                '"two"',
            }
        shown = await dig(port, TARGET, "TXT")
        assert "status: NOERROR" in shown
        assert "flags: qr aa rd;" in shown
        assert "WARNING: recursion requested but not available" in shown
        assert "ns1.example.net. hostmaster.cloud.example.com." in await dig(port, ZONE, "SOA")
        assert await dig(port, "+short", ZONE, "NS") == "ns1.example.net.\n"
        assert "status: NXDOMAIN" in await dig(port, f"www.{ZONE}")
        assert "status: REFUSED" in await dig(port, "www.example.org")
        assert "status: NXDOMAIN" in await dig(port, "+dnssec", "+bufsize=4096", f"a.b.{ZONE}")


async def test_several_processes_can_share_the_port() -> None:
    async with served(Texts()) as taken, served(Texts(), taken) as port:
        assert port == taken


async def test_queries_beyond_the_limit_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zone_server, "MOST_AT_ONCE", 3)
    texts = Texts()
    texts.goes_on.clear()
    async with served(texts) as port:
        asked = [
            asyncio.create_task(dns.asyncquery.udp(QUERY, "127.0.0.1", 30, port)) for _ in range(6)
        ]
        while texts.asked < 3:  # noqa: ASYNC110 - an event would be set by each of them
            await asyncio.sleep(0)
        await asyncio.wait(asked, timeout=0.3)  # the others may come as late as that
        texts.goes_on.set()
        for answer in islice(asyncio.as_completed(asked), 3):
            assert (await answer).answer
        assert texts.asked == 3
        for each in asked:
            each.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def test_while_the_database_is_away_nothing_is_said() -> None:
    texts = Texts()
    texts.failure = Unavailable("the database is away")
    assert await answers_to(FRAMED, texts) == b""


async def answers_to(sent: bytes, texts: Texts) -> bytes:
    """Return what comes on one connection until it is closed."""
    async with served(texts) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        found = await reader.read()
        writer.close()
        return found


@pytest.mark.parametrize("sent", [b"\xff\xff", b"\x00\x05hello", b"\x00\x00"])
async def test_a_connection_that_sends_no_query_is_closed(sent: bytes) -> None:
    assert await answers_to(sent, Texts()) == b""


async def test_one_connection_has_several_queries_and_idle_ones_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zone_server, "_IDLE_SECONDS", 0.2)
    whole = await answers_to(FRAMED * 3, Texts())
    assert len(whole) == 3 * (int.from_bytes(whole[:2]) + 2)


@pytest.mark.parametrize("limit", ["MOST_OF_ONE", "MOST_CONNECTIONS"])
async def test_connections_beyond_a_limit_are_closed(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One source cannot take all of them."""
    monkeypatch.setattr(zone_server, limit, 1)
    monkeypatch.setattr(zone_server, "_IDLE_SECONDS", 600)
    async with served(Texts()) as port:
        _, first = await asyncio.open_connection("127.0.0.1", port)
        reader, second = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(30):  # an idle one would end later
            assert await reader.read() == b""
        if limit == "MOST_OF_ONE":
            other = await dns.asyncquery.tcp(QUERY, "127.0.0.1", 30, port, "127.0.0.2")
            assert other.answer
        first.close()
        second.close()
        # The place of a connection that has ended is free again.
        while True:
            try:
                await dns.asyncquery.tcp(QUERY, "127.0.0.1", 30, port)
                break
            except (EOFError, ConnectionError):  # or reset, if the query has come meanwhile
                await asyncio.sleep(0)


async def test_a_connection_that_ended_by_an_error_of_ours_gives_its_place_back() -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    texts = Texts()
    texts.failure = ArithmeticError("not foreseen")
    async with served(texts) as port:
        for _ in range(zone_server.MOST_OF_ONE):
            with pytest.raises((EOFError, ConnectionError)):
                await dns.asyncquery.tcp(QUERY, "127.0.0.1", 30, port)
        texts.failure = None
        assert (await dns.asyncquery.tcp(QUERY, "127.0.0.1", 30, port)).answer


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_connection_that_was_reset_before_it_is_taken_is_no_error(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    errors: list[dict[str, Any]] = []

    async def connect() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, error: errors.append(error))
        async with served(Texts()) as port:
            for _ in range(5):  # within one turn of the loop: none is taken yet
                with socket.create_connection(("127.0.0.1", port)) as client:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            assert (await dns.asyncquery.tcp(QUERY, "127.0.0.1", 30, port)).answer
            assert errors == []

    run(connect())

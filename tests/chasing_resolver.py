"""A resolver of a test for an authority: it chases CNAMEs to the name server of our zone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import cast

import dns.asyncquery
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

_SECONDS = 10


class ChasingResolver(asyncio.DatagramProtocol):
    """Answers TXT queries, with a CNAME and what it leads to in one answer; nothing else exists."""

    def __init__(self, zone: str, port: int, cnames: Mapping[str, str]) -> None:
        """Ask the server of `zone` at `port`; names of `cnames` end in a dot."""
        self._zone = f"{zone}."
        self._port = port
        self._cnames = cnames
        self._tasks = set[asyncio.Task[None]]()
        self.asked: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        task = asyncio.create_task(self._answer(data, addr))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, data: bytes, addr: tuple[str, int]) -> None:
        query = dns.message.from_wire(data)
        name = query.question[0].name
        self.asked.append(name.to_text().lower())
        answer = dns.message.make_response(query)
        answer.flags |= dns.flags.RA
        target = self._cnames.get(name.to_text().lower())
        if target is not None:
            answer.answer.append(dns.rrset.from_text(name, 5, "IN", "CNAME", target))
        leads_to = target or name.to_text()
        if not leads_to.lower().endswith(f".{self._zone}"):
            answer.set_rcode(dns.rcode.NXDOMAIN)
        else:
            asked = dns.message.make_query(leads_to, query.question[0].rdtype)
            found = await dns.asyncquery.udp(asked, "127.0.0.1", _SECONDS, self._port)
            answer.answer += found.answer
            answer.set_rcode(found.rcode())
        self._transport.sendto(answer.to_wire(), addr)


@asynccontextmanager
async def chasing_resolver(
    zone: str, port: int, cnames: Mapping[str, str]
) -> AsyncIterator[tuple[ChasingResolver, str]]:
    """Run the resolver; yield it with its address."""
    loop = asyncio.get_running_loop()
    transport, resolver = await loop.create_datagram_endpoint(
        lambda: ChasingResolver(zone, port, cnames), local_addr=("127.0.0.1", 0)
    )
    try:
        host, bound = transport.get_extra_info("sockname")
        yield resolver, f"{host}:{bound}"
    finally:
        transport.close()

"""A name server of a test, on a socket of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset


@dataclass
class NameServer(asyncio.DatagramProtocol):
    """Answers with CNAME, TXT and other records; any other name does not exist."""

    cnames: dict[str, str] = field(default_factory=dict)
    """Both names end in a dot."""
    texts: dict[str, list[str]] = field(default_factory=dict)
    """The TXT records of names, which end in a dot, each in the form of a zone file."""
    records: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Those of other types, such as MX, by name, with a dot, and type."""
    fails: bool = False
    held: list[tuple[bytes, tuple[str, int]]] | None = None
    """What is asked and not answered before `release`; None if all is answered at once."""
    asked: list[str] = field(default_factory=list)
    address: str = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note where it listens."""
        self._transport = cast("asyncio.DatagramTransport", transport)
        host, port = transport.get_extra_info("sockname")
        self.address = f"{host}:{port}"

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answer a query."""
        answer = self._answer(data)
        if self.held is None:
            self._transport.sendto(answer, addr)
        else:
            self.held.append((answer, addr))

    def release(self) -> None:
        """Give the answers that are held, as they were when they were asked for."""
        held, self.held = self.held or [], None
        for answer, addr in held:
            self._transport.sendto(answer, addr)

    def _answer(self, data: bytes) -> bytes:
        query = dns.message.from_wire(data)
        name = query.question[0].name
        kind = dns.rdatatype.to_text(query.question[0].rdtype)
        self.asked.append(name.to_text())
        answer = dns.message.make_response(query)
        answer.flags |= dns.flags.RA
        target = self.cnames.get(name.to_text())
        if self.fails:
            answer.set_rcode(dns.rcode.SERVFAIL)
        elif texts := self.texts.get(name.to_text()):
            answer.answer.append(dns.rrset.from_text_list(name, 60, "IN", "TXT", texts))
        elif found := self.records.get((name.to_text(), kind)):
            answer.answer.append(dns.rrset.from_text_list(name, 60, "IN", kind, found))
        elif any(name.to_text() == each for each, _ in self.records):
            pass  # it exists, and has no records of this type
        elif target is None:
            answer.set_rcode(dns.rcode.NXDOMAIN)
        else:
            answer.answer.append(dns.rrset.from_text(name, 60, "IN", "CNAME", target))
        return answer.to_wire()


@asynccontextmanager
async def name_server() -> AsyncIterator[NameServer]:
    """Run a name server."""
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(NameServer, local_addr=("127.0.0.1", 0))
    try:
        yield server
    finally:
        transport.close()

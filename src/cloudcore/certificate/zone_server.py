"""The name server of the platform's zone: UDP and TCP, in every worker.

It is authoritative only for this zone. It serves the TXT values of challenges, and the SOA and NS
records that a zone must have. Responses are small, so that queries with spoofed sources cannot
flood a victim.

Sources: RFC 1034, 1035, 2308, 6891, 8482, 9619.
"""

from __future__ import annotations

import asyncio
import logging
import re
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from ipaddress import IPv4Address, ip_address
from typing import Final, NamedTuple, cast

import dnslib
from dnslib.buffer import BufferError as DnsBufferError
from dnslib.label import DNSLabelError

from cloudcore.certificate.domains import MOST_DOMAINS
from cloudcore.errors import Unavailable

FindTexts = Callable[[str], Awaitable[Sequence[str]]]
"""Returns the TXT values of a DNS name, which is in lower case and ends in a dot."""

MOST_QUERY_BYTES: Final = 512
"""Maximum bytes of a query, which has one name and some options; longer queries are dropped."""
MOST_ANSWER_BYTES: Final = 512
"""Maximum bytes of a response over UDP, whatever size the client accepts; longer responses are sent
only over TCP."""
MOST_TEXTS: Final = MOST_DOMAINS
"""Maximum TXT values in a response: the domains of a certificate from an earlier version share one
name, with a value for each domain."""
_HEADER_BYTES: Final = 12
_IS_ANSWER: Final = 0x80
_TEXT_SECONDS: Final = 5
"""How long resolvers may cache TXT values, or their absence; each order has other values."""
_ZONE_SECONDS: Final = 3600
_TIMES: Final = (3600, 600, 604800, _TEXT_SECONDS)
"""Times of the SOA record, in seconds: refresh, retry, expire, and how long absence may be cached.

Only secondary servers use the first three, and there are none. The last is from RFC 2308."""
_UUID: Final = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NUMBER: Final = re.compile(rb"[1-9][0-9]{0,2}")
_CHALLENGE: Final = b"_acme-challenge"
_ANY_CLASS: Final = 255
_BAD_VERSION: Final = 1
"""The upper bits of the response code BADVERS (16, RFC 6891)."""
_MALFORMED: Final = (
    *(dnslib.DNSError, DnsBufferError, DNSLabelError, struct.error),
    *(ValueError, LookupError, TypeError, OverflowError),
)

Labels = tuple[bytes, ...]


class Zone(NamedTuple):
    """The zone and its name servers."""

    name: str
    """In lower case, without a final dot."""
    name_servers: tuple[str, ...]
    """Host names as in the delegation of the zone; the first is the primary of the SOA."""
    hosted: tuple[str, ...] = ()
    """Domains in the zone whose challenges need no CNAME."""


class Answerer:
    """Answers queries; a process has one instance."""

    def __init__(self, zone: Zone, find_texts: FindTexts) -> None:
        self._zone = zone
        self._apex = _labels(zone.name)
        self._hosted = [_labels(each) for each in zone.hosted]
        self._find_texts = find_texts

    async def answer(self, data: bytes, *, over_tcp: bool = False) -> bytes | None:
        """Return the response to a message; None if malformed, too long or itself a response."""
        if not _HEADER_BYTES <= len(data) <= MOST_QUERY_BYTES or data[2] & _IS_ANSWER:
            return None
        try:
            query = dnslib.DNSRecord.parse(data)
            if query.header.get_opcode() != dnslib.OPCODE.QUERY:
                return _refusal(query.header, dnslib.RCODE.NOTIMP)
            if len(query.questions) != 1 or query.rr or query.auth or len(query.ar) > 1:
                return _refusal(query.header, dnslib.RCODE.FORMERR)
            made = await self._reply(query)
            packed = made.pack()
        except _MALFORMED:
            return None
        if over_tcp or len(packed) <= MOST_ANSWER_BYTES:
            return bytes(packed)
        made.header.tc, made.rr, made.auth = 1, [], []
        return bytes(made.pack())

    async def _reply(self, query: dnslib.DNSRecord) -> dnslib.DNSRecord:
        header = dnslib.DNSHeader(id=query.header.id, qr=1, aa=1, ra=0, rd=query.header.rd)
        reply = dnslib.DNSRecord(header, q=query.q)
        options = [each for each in query.ar if each.rtype == dnslib.QTYPE.OPT]
        if options:
            is_known = options[0].edns_ver == 0
            reply.add_ar(
                dnslib.EDNS0(udp_len=MOST_ANSWER_BYTES, ext_rcode=0 if is_known else _BAD_VERSION)
            )
            if not is_known:
                return reply
        labels = tuple(label.lower() for label in query.q.qname.label)
        if query.q.qclass not in (dnslib.CLASS.IN, _ANY_CLASS) or not _is_within(
            labels, self._apex
        ):
            header.aa, header.rcode = 0, dnslib.RCODE.REFUSED
            return reply
        found = await self._records(query.q, labels[: len(labels) - len(self._apex)])
        if found is None:
            header.rcode = dnslib.RCODE.NXDOMAIN
        if found:
            reply.add_answer(*found)
        else:
            reply.add_auth(self._start_of_authority(_TEXT_SECONDS))
        return reply

    async def _records(self, question: dnslib.DNSQuestion, below: Labels) -> list[dnslib.RR] | None:
        """Return the records that answer a question, or None if its name does not exist.

        `below` are the labels of the name below the zone's name.
        """
        kind, name = question.qtype, question.qname
        if not below:
            return self._of_apex(kind)
        if _is_target(below) or below[0] == _CHALLENGE:
            if kind not in (dnslib.QTYPE.TXT, dnslib.QTYPE.ANY):
                return []
            full = b".".join((*below, *self._apex)).decode()
            if "\0" in full:  # PostgreSQL refuses it
                return None
            texts = (await self._find_texts(f"{full}."))[:MOST_TEXTS]
            return [
                dnslib.RR(name, dnslib.QTYPE.TXT, rdata=dnslib.TXT(text), ttl=_TEXT_SECONDS)
                for text in texts
            ]
        return [] if below == (b"acme",) or self._is_hosted((*below, *self._apex)) else None

    def _of_apex(self, kind: int) -> list[dnslib.RR]:
        if kind == dnslib.QTYPE.NS:
            return [
                dnslib.RR(
                    self._zone.name, dnslib.QTYPE.NS, rdata=dnslib.NS(each), ttl=_ZONE_SECONDS
                )
                for each in self._zone.name_servers
            ]
        if kind in (dnslib.QTYPE.SOA, dnslib.QTYPE.ANY):
            return [self._start_of_authority(_ZONE_SECONDS)]
        return []

    def _is_hosted(self, labels: Labels) -> bool:
        """Return True for hosted domains and the names above and below them, which have no records.

        They must exist, since nothing exists below a name that does not (RFC 8020).
        """
        return any(_is_within(labels, each) or _is_within(each, labels) for each in self._hosted)

    def _start_of_authority(self, seconds: int) -> dnslib.RR:
        zone = self._zone
        soa = dnslib.SOA(zone.name_servers[0], f"hostmaster.{zone.name}", (1, *_TIMES))
        return dnslib.RR(zone.name, dnslib.QTYPE.SOA, rdata=soa, ttl=seconds)


def _refusal(header: dnslib.DNSHeader, code: int) -> bytes:
    """Return an error response that does not repeat the question."""
    made = dnslib.DNSHeader(id=header.id, qr=1, ra=0, rd=header.rd, rcode=code)
    made.set_opcode(header.get_opcode())
    return bytes(dnslib.DNSRecord(made).pack())


def _labels(name: str) -> Labels:
    return tuple(name.encode("ascii").split(b"."))


def _is_target(below: Labels) -> bool:
    """Return True for ``<number>.<id>.acme``, to which CNAMEs point, and for ``<id>.acme``."""
    number, place = below[:-2], below[-2:]
    return (
        len(place) == 2
        and place[1] == b"acme"
        and _UUID.fullmatch(place[0]) is not None
        and (not number or (len(number) == 1 and _NUMBER.fullmatch(number[0]) is not None))
    )


def _is_within(labels: Labels, zone: Labels) -> bool:
    return labels[-len(zone) :] == zone


MOST_AT_ONCE: Final = 100
"""Maximum UDP queries that a worker answers at once; others are dropped, for clients to repeat."""
MOST_CONNECTIONS: Final = 50
MOST_OF_ONE: Final = 10
"""Maximum connections per source: an IPv4 address, or an IPv6 network of 64 bits."""
_IDLE_SECONDS: Final = 10.0
_MOST_QUERIES: Final = 100
"""Maximum queries per connection."""

_log = logging.getLogger(__name__)


@asynccontextmanager
async def serving_zone(answerer: Answerer, host: str, port: int) -> AsyncIterator[int]:
    """Serve DNS over UDP and TCP; yield the port, which several processes may share.

    Raise `OSError` if the address cannot be bound.
    """
    loop = asyncio.get_running_loop()
    queries = QueryTasks(answerer)
    connections = TcpConnections(queries)
    # Bind TCP first: with port 0, a port free for UDP may be in use by an outgoing TCP connection.
    server = await asyncio.start_server(
        connections.serve, host, port, reuse_port=True, limit=MOST_QUERY_BYTES
    )
    async with server:
        bound: int = server.sockets[0].getsockname()[1]
        transport, _ = await loop.create_datagram_endpoint(
            lambda: Datagrams(queries), (host, bound), reuse_port=True
        )
        try:
            yield bound
        finally:
            connections.close()
            transport.close()
            queries.cancel()


class QueryTasks:
    """Answers queries, at most `MOST_AT_ONCE` datagrams at the same time."""

    def __init__(self, answerer: Answerer) -> None:
        self._answerer = answerer
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, datagrams: Datagrams, data: bytes, address: object) -> None:
        """Start to answer a datagram, or drop it if too many are being answered."""
        if len(self._tasks) < MOST_AT_ONCE:
            task = asyncio.create_task(self._answer(datagrams, data, address))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        """Cancel all answers under way."""
        for task in self._tasks:
            task.cancel()

    async def answer(self, data: bytes, *, over_tcp: bool) -> bytes | None:
        """Return the response; None if the query gets none, or the database is unavailable."""
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
    """Receives queries over UDP; drops responses while the socket is full."""

    def __init__(self, queries: QueryTasks) -> None:
        self._queries = queries
        self._is_full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def pause_writing(self) -> None:
        """Drop responses from now on, as the socket is full."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Send responses again."""
        self._is_full = False

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Receive a query."""
        self._queries.take(self, data, addr)

    def send(self, data: bytes, address: object) -> None:
        """Send a response, or drop it while the socket is full."""
        if not self._is_full:
            self._transport.sendto(data, cast("tuple[str, int]", address))


class TcpConnections:
    """Serves TCP connections; each message is preceded by its length (RFC 1035 §4.2.2)."""

    def __init__(self, queries: QueryTasks) -> None:
        self._queries = queries
        self._writers: set[asyncio.StreamWriter] = set()
        self._of_source = Counter[str]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the queries of a connection; close it when it is idle or has sent too many.

        Close it at once if there are too many connections, in total or from its source.
        """
        source = _source(writer)
        is_taken = len(self._writers) < MOST_CONNECTIONS and self._of_source[source] < MOST_OF_ONE
        if source and is_taken:
            self._writers.add(writer)
            self._of_source[source] += 1
            try:
                with suppress(OSError, EOFError, TimeoutError):
                    for _ in range(_MOST_QUERIES):
                        if not await self._serve_one(reader, writer):
                            break
            finally:
                self._writers.discard(writer)
                self._of_source -= Counter({source: 1})
                writer.close()
        else:
            writer.close()

    def close(self) -> None:
        """Abort all connections."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        async with asyncio.timeout(_IDLE_SECONDS):
            size = int.from_bytes(await reader.readexactly(2))
            if size > MOST_QUERY_BYTES:
                return False
            answer = await self._queries.answer(await reader.readexactly(size), over_tcp=True)
            if answer is None:
                return False
            writer.write(len(answer).to_bytes(2) + answer)
            await writer.drain()
        return True


def _source(writer: asyncio.StreamWriter) -> str:
    """Return the source of a connection (see `MOST_OF_ONE`); "" if the connection has ended."""
    peer = writer.get_extra_info("peername")
    if peer is None:
        return ""
    address = ip_address(peer[0].partition("%")[0])
    if isinstance(address, IPv4Address):
        return str(address)
    return str(address.ipv4_mapped or int(address) >> 64)

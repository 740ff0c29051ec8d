"""What the name server of the platform's zone answers: it is authoritative for that zone alone.

There are the TXT values of challenges, and what a zone must have: SOA and NS. Answers are small, so
nobody is flooded with them in another's name. Sources: RFC 1034, 1035, 2308, 6891, 8482, 9619.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from dnslib import (
    CLASS,
    EDNS0,
    NS,
    OPCODE,
    QTYPE,
    RCODE,
    RR,
    SOA,
    TXT,
    DNSError,
    DNSHeader,
    DNSQuestion,
    DNSRecord,
)
from dnslib.buffer import BufferError as DnsBufferError
from dnslib.label import DNSLabelError

from cloudcore.certificate.domains import MOST_DOMAINS

FindTexts = Callable[[str], Awaitable[Sequence[str]]]
"""Returns the TXT values of a name, which is in lower case and ends in a dot."""

MOST_QUERY_BYTES: Final = 512
"""A query has one name, and some options; a longer one is dropped."""
MOST_ANSWER_BYTES: Final = 512
"""Over UDP, whatever the client can take: more must be asked for over TCP."""
MOST_TEXTS: Final = MOST_DOMAINS
"""All domains of an old certificate lead to one name, which has a value for each."""
_HEADER_BYTES: Final = 12
_IS_ANSWER: Final = 0x80
_TEXT_SECONDS: Final = 5
"""How long resolvers keep values, or that there are none: the next order has others."""
_ZONE_SECONDS: Final = 3600
_TIMES: Final = (3600, 600, 604800, _TEXT_SECONDS)
"""Refresh, retry and expire of the SOA, which no secondary asks for; then RFC 2308's minimum."""
_UUID: Final = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NUMBER: Final = re.compile(rb"[1-9][0-9]{0,2}")
_CHALLENGE: Final = b"_acme-challenge"
_ANY_CLASS: Final = 255
_BAD_VERSION: Final = 1
"""The upper bits of BADVERS, which is 16."""
_MALFORMED: Final = (
    *(DNSError, DnsBufferError, DNSLabelError, struct.error),
    *(ValueError, LookupError, TypeError, OverflowError),
)

Labels = tuple[bytes, ...]


class Zone(NamedTuple):
    """The zone, and who serves it."""

    name: str
    """In lower case, without a dot at its end."""
    name_servers: tuple[str, ...]
    """Host names as they stand where the zone is delegated, the first one first."""
    hosted: tuple[str, ...] = ()
    """Domains in the zone whose challenges need no CNAME."""


class Answerer:
    """Answers queries; one per process."""

    def __init__(self, zone: Zone, find_texts: FindTexts) -> None:
        self._zone = zone
        self._apex = _labels(zone.name)
        self._hosted = [_labels(each) for each in zone.hosted]
        self._find_texts = find_texts

    async def answer(self, data: bytes, *, over_tcp: bool = False) -> bytes | None:
        """Return the answer to a message, or None to say nothing."""
        if not _HEADER_BYTES <= len(data) <= MOST_QUERY_BYTES or data[2] & _IS_ANSWER:
            return None
        try:
            query = DNSRecord.parse(data)
            if query.header.get_opcode() != OPCODE.QUERY:
                return _refusal(query.header, RCODE.NOTIMP)
            if len(query.questions) != 1 or query.rr or query.auth or len(query.ar) > 1:
                return _refusal(query.header, RCODE.FORMERR)
            made = await self._reply(query)
            packed = made.pack()
        except _MALFORMED:
            return None
        if over_tcp or len(packed) <= MOST_ANSWER_BYTES:
            return bytes(packed)
        made.header.tc, made.rr, made.auth = 1, [], []
        return bytes(made.pack())

    async def _reply(self, query: DNSRecord) -> DNSRecord:
        header = DNSHeader(id=query.header.id, qr=1, aa=1, ra=0, rd=query.header.rd)
        reply = DNSRecord(header, q=query.q)
        options = [each for each in query.ar if each.rtype == QTYPE.OPT]
        if options:
            is_known = options[0].edns_ver == 0
            reply.add_ar(
                EDNS0(udp_len=MOST_ANSWER_BYTES, ext_rcode=0 if is_known else _BAD_VERSION)
            )
            if not is_known:
                return reply
        labels = tuple(label.lower() for label in query.q.qname.label)
        if query.q.qclass not in (CLASS.IN, _ANY_CLASS) or not _is_within(labels, self._apex):
            header.aa, header.rcode = 0, RCODE.REFUSED
            return reply
        found = await self._records(query.q, labels[: len(labels) - len(self._apex)])
        if found is None:
            header.rcode = RCODE.NXDOMAIN
        if found:
            reply.add_answer(*found)
        else:
            reply.add_auth(self._start_of_authority(_TEXT_SECONDS))
        return reply

    async def _records(self, question: DNSQuestion, below: Labels) -> list[RR] | None:
        """Return what a name below the apex has of a type; None if there is no such name."""
        kind, name = question.qtype, question.qname
        if not below:
            return self._of_apex(kind)
        if _is_target(below) or below[0] == _CHALLENGE:
            if kind not in (QTYPE.TXT, QTYPE.ANY):
                return []
            full = b".".join((*below, *self._apex)).decode()
            texts = (await self._find_texts(f"{full}."))[:MOST_TEXTS]
            return [RR(name, QTYPE.TXT, rdata=TXT(text), ttl=_TEXT_SECONDS) for text in texts]
        return [] if below == (b"acme",) or self._is_hosted((*below, *self._apex)) else None

    def _of_apex(self, kind: int) -> list[RR]:
        if kind == QTYPE.NS:
            return [
                RR(self._zone.name, QTYPE.NS, rdata=NS(each), ttl=_ZONE_SECONDS)
                for each in self._zone.name_servers
            ]
        if kind in (QTYPE.SOA, QTYPE.ANY):
            return [self._start_of_authority(_ZONE_SECONDS)]
        return []

    def _is_hosted(self, labels: Labels) -> bool:
        """Return True for names that are there, with nothing: of hosted domains, and around them.

        If one of these did not exist, nothing below it would (RFC 8020).
        """
        return any(_is_within(labels, each) or _is_within(each, labels) for each in self._hosted)

    def _start_of_authority(self, seconds: int) -> RR:
        zone = self._zone
        soa = SOA(zone.name_servers[0], f"hostmaster.{zone.name}", (1, *_TIMES))
        return RR(zone.name, QTYPE.SOA, rdata=soa, ttl=seconds)


def _refusal(header: DNSHeader, code: int) -> bytes:
    """Return an answer without the question."""
    made = DNSHeader(id=header.id, qr=1, ra=0, rd=header.rd, rcode=code)
    made.set_opcode(header.get_opcode())
    return bytes(DNSRecord(made).pack())


def _labels(name: str) -> Labels:
    return tuple(name.encode("ascii").split(b"."))


def _is_target(below: Labels) -> bool:
    """Return True for ``<number>.<id>.acme``, where challenges lead to, and for ``<id>.acme``."""
    number, place = below[:-2], below[-2:]
    return (
        len(place) == 2
        and place[1] == b"acme"
        and _UUID.fullmatch(place[0]) is not None
        and (not number or (len(number) == 1 and _NUMBER.fullmatch(number[0]) is not None))
    )


def _is_within(labels: Labels, zone: Labels) -> bool:
    return labels[-len(zone) :] == zone

"""What the name server of the platform's zone answers, as dnspython reads it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final

import dns.edns
import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcore.certificate.zone_server import MOST_ANSWER_BYTES, Answerer, Zone

ZONE: Final = "cloud.example.com"
ID: Final = "0198c2f0-1111-7222-8333-444455556666"
OLD_TARGET: Final = f"{ID}.acme.{ZONE}."
TARGET: Final = f"1.{OLD_TARGET}"
HOSTED: Final = f"_acme-challenge.app.{ZONE}."
VALUE: Final = "x" * 43
TEXTS: Final = {TARGET: [VALUE, "y" * 43], HOSTED: [VALUE]}


class Names:
    """An answerer over the TXT values of a test."""

    def __init__(self, texts: dict[str, list[str]] | None = None) -> None:
        self.texts = TEXTS if texts is None else texts
        self.asked: list[str] = []
        zone = Zone(ZONE, ("ns1.example.net", "ns2.example.net"), (f"app.{ZONE}",))
        self.answerer = Answerer(zone, self.find)

    async def find(self, name: str) -> Sequence[str]:
        self.asked.append(name)
        return self.texts.get(name, [])

    def raw(self, data: bytes, *, over_tcp: bool = False) -> bytes | None:
        return asyncio.run(self.answerer.answer(data, over_tcp=over_tcp))

    def ask(
        self, name: str, kind: str = "TXT", *, over_tcp: bool = False, edns: int | None = None
    ) -> dns.message.Message:
        query = dns.message.make_query(name, kind, use_edns=edns, payload=4096)
        data = self.raw(query.to_wire(), over_tcp=over_tcp)
        assert data is not None
        answer = dns.message.from_wire(data)
        assert query.is_response(answer)
        assert not answer.flags & dns.flags.RA
        return answer


def texts_of(answer: dns.message.Message) -> set[str]:
    return {each.to_text().strip('"') for rrset in answer.answer for each in rrset}


def soa_of(answer: dns.message.Message) -> bool:
    return [rrset.rdtype for rrset in answer.authority] == [dns.rdatatype.SOA]


def test_both_values_of_a_wildcard_and_its_apex_are_there_at_once() -> None:
    """C2."""
    answer = Names().ask(TARGET)
    assert answer.rcode() == dns.rcode.NOERROR
    assert answer.flags & dns.flags.AA
    assert texts_of(answer) == {VALUE, "y" * 43}
    assert not answer.authority


def test_names_are_asked_in_any_case_and_shown_as_they_were_asked() -> None:
    names = Names()
    asked = TARGET.upper()
    answer = names.ask(asked)
    assert names.asked == [TARGET]
    assert answer.question[0].name.to_text() == asked
    assert texts_of(answer) == {VALUE, "y" * 43}


def test_a_hosted_domain_has_its_values_without_a_cname() -> None:
    """C3."""
    names = Names()
    assert texts_of(names.ask(HOSTED)) == {VALUE}
    for name in (f"app.{ZONE}", f"www.app.{ZONE}"):
        answer = names.ask(name, "CAA")
        assert answer.rcode() == dns.rcode.NOERROR
        assert soa_of(answer)


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        (TARGET, "A", dns.rcode.NOERROR),
        (TARGET, "CAA", dns.rcode.NOERROR),
        (OLD_TARGET, "TXT", dns.rcode.NOERROR),
        (f"100.{OLD_TARGET}", "TXT", dns.rcode.NOERROR),
        (f"01.{OLD_TARGET}", "TXT", dns.rcode.NXDOMAIN),
        (f"1.1.{OLD_TARGET}", "TXT", dns.rcode.NXDOMAIN),
        (f"{ID[:-1]}0.acme.{ZONE}.", "TXT", dns.rcode.NOERROR),
        (f"acme.{ZONE}.", "TXT", dns.rcode.NOERROR),
        (f"{ZONE}.", "A", dns.rcode.NOERROR),
        (f"www.{ZONE}.", "A", dns.rcode.NXDOMAIN),
        (f"x.{TARGET}", "TXT", dns.rcode.NXDOMAIN),
        (f"not-an-id.acme.{ZONE}.", "TXT", dns.rcode.NXDOMAIN),
    ],
)
def test_what_is_not_there_is_said_with_the_start_of_authority(
    name: str, kind: str, code: int
) -> None:
    answer = Names().ask(name, kind)
    assert answer.rcode() == code
    assert not answer.answer
    assert soa_of(answer)
    assert answer.flags & dns.flags.AA
    assert answer.authority[0][0].minimum == answer.authority[0].ttl == 5


def test_the_database_is_not_asked_for_a_name_with_nul() -> None:
    """PostgreSQL would refuse it."""
    names = Names()
    assert names.ask(f"_acme-challenge.\\000.{ZONE}.").rcode() == dns.rcode.NXDOMAIN
    assert names.asked == []


def test_the_zone_has_soa_and_name_servers() -> None:
    names = Names()
    soa = names.ask(ZONE, "SOA").answer[0][0]
    assert soa.mname.to_text() == "ns1.example.net."
    assert {each.to_text() for each in names.ask(ZONE, "NS").answer[0]} == {
        "ns1.example.net.",
        "ns2.example.net.",
    }


@pytest.mark.parametrize("name", ["example.com.", "evilcloud.example.com.", ".", "com."])
def test_other_zones_are_refused(name: str) -> None:
    names = Names()
    answer = names.ask(name)
    assert answer.rcode() == dns.rcode.REFUSED
    assert not answer.answer
    assert not answer.authority
    assert not answer.flags & dns.flags.AA
    assert not names.asked


def test_options_are_answered_and_unknown_versions_told() -> None:
    names = Names()
    known = names.ask(TARGET, edns=0)
    assert known.edns == 0
    assert known.payload == MOST_ANSWER_BYTES
    assert names.ask(TARGET, edns=1).rcode() == dns.rcode.BADVERS


def test_an_answer_that_is_too_large_is_asked_again_over_tcp() -> None:
    """A certificate of 100 domains that is older than their names has 100 values at one."""
    values = [f"{number:043}" for number in range(101)]
    names = Names({OLD_TARGET: values})
    over_udp = names.ask(OLD_TARGET, edns=0)
    assert over_udp.flags & dns.flags.TC
    assert not over_udp.answer
    assert texts_of(names.ask(OLD_TARGET, over_tcp=True)) == set(values[:100])


@pytest.mark.parametrize("kind", ["ANY", "TXT", "SOA", "NS", "A", "AXFR", "DNSKEY"])
@pytest.mark.parametrize("name", [TARGET, HOSTED, f"{ZONE}.", f"a.{ZONE}.", "example.org."])
def test_no_answer_is_much_larger_than_its_question(name: str, kind: str) -> None:
    query = dns.message.make_query(name, kind, use_edns=0, payload=4096).to_wire()
    answer = Names().raw(query)
    assert answer is not None
    assert len(answer) <= 3 * len(query)


def test_answers_are_not_answered_and_other_operations_not_done() -> None:
    names = Names()
    query = dns.message.make_query(TARGET, "TXT")
    assert names.raw(dns.message.make_response(query).to_wire()) is None
    query.set_opcode(dns.opcode.NOTIFY)
    told = names.raw(query.to_wire())
    assert told is not None
    assert dns.message.from_wire(told).rcode() == dns.rcode.NOTIMP
    two = dns.message.make_query(TARGET, "TXT")
    two.question.append(two.question[0])
    told = names.raw(two.to_wire())
    assert told is not None
    assert told[3] & 0x0F == dns.rcode.FORMERR
    assert len(told) == 12


@given(st.binary(max_size=600))
def test_anything_that_is_no_query_is_dropped_or_answered_small(data: bytes) -> None:
    answer = Names().raw(data)
    assert answer is None or len(answer) <= MOST_ANSWER_BYTES


def test_queries_with_changed_bytes_raise_nothing() -> None:
    names = Names()
    source = random.Random(1)
    query = dns.message.make_query(TARGET, "TXT", use_edns=0).to_wire()
    for _ in range(3000):
        data = bytearray(query)
        for _ in range(source.randint(1, 6)):
            data[source.randrange(len(data))] = source.randrange(256)
        answer = names.raw(bytes(data[: source.randint(1, len(data))]))
        assert answer is None or len(answer) <= MOST_ANSWER_BYTES

"""Whom a request comes from: forwarded headers count only as far as our own proxies vouch."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from cloudcore.serving.clients import rate_subject, source_address

PROXIES = [ip_network("10.0.0.0/8"), ip_network("fd00::/8")]


@pytest.mark.parametrize(
    ("peer", "forwarded", "source"),
    [
        ("192.0.2.1", [], "192.0.2.1"),
        ("192.0.2.1", [b"198.51.100.1"], "192.0.2.1"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", [b"198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", [b"203.0.113.9, 198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", [b"203.0.113.9", b"198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", [b"203.0.113.9, 198.51.100.1, 10.0.0.2"], "198.51.100.1"),
        ("10.0.0.1", [b"junk"], "10.0.0.1"),
        ("10.0.0.1", [b"203.0.113.9, junk, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", [b"\xff\xfe"], "10.0.0.1"),
        ("fd00::1", [b"2001:db8::1"], "2001:db8::1"),
        ("::ffff:10.0.0.1", [b"198.51.100.1"], "198.51.100.1"),
        ("::ffff:192.0.2.1", [], "192.0.2.1"),
    ],
)
def test_the_nearest_stranger_counts(peer: str, forwarded: list[bytes], source: str) -> None:
    assert source_address(peer, forwarded, PROXIES) == ip_address(source)


@pytest.mark.parametrize("peer", [None, "", "/run/socket"])
def test_a_peer_without_an_address_has_none(peer: str | None) -> None:
    assert source_address(peer, [b"198.51.100.1"], PROXIES) is None


def test_the_holder_of_a_network_is_one_subject() -> None:
    first, second = ip_address("2001:db8::1"), ip_address("2001:db8::ffff:0:0:1")
    assert rate_subject(first) == rate_subject(second) == "2001:db8::/64"
    assert rate_subject(ip_address("2001:db8:0:1::1")) != rate_subject(first)
    assert rate_subject(ip_address("192.0.2.1")) == "192.0.2.1"

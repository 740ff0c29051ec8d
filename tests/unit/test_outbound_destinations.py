"""Which URLs and addresses users may have the platform ask."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from cloudcore.outbound.destinations import (
    Allowed,
    Destination,
    NotAllowed,
    check_addresses,
    check_url,
    is_public,
    origin_of,
    unwrapped,
)

NOTHING = Allowed("ENTREPOT_THINGS_ALLOWED")
INSIDE = Allowed(
    "ENTREPOT_THINGS_ALLOWED",
    ("http://127.0.0.1:9000", "https://things.internal", "http://[::1]"),
    (ip_network("10.20.0.0/16"), ip_network("fd00:5::/32")),
)
HOST = Destination("https", "things.example.com", 443, "/", is_listed=False)

_REFUSED = """
0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.127.255.255 127.0.0.1 127.1.2.3
169.254.169.254 169.254.0.1 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.170 192.0.2.1 192.88.99.1
192.168.0.1 192.168.255.255 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1
239.255.255.255 240.0.0.1 255.255.255.255
:: ::1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254
::ffff:0:127.0.0.1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b::a00:1 64:ff9b:1::7f00:1
64:ff9b:1:ffff::808:808 100::1 100:0:0:1::1 2001:: 2001:0:7f00:1:: 2001:0:808:808::1 2001:2::1
2001:10::1 2001:20::1 2001:db8::1 2002:7f00:1:: 2002:a9fe:a9fe:: 2002:808:808:: 3ffe::1 3fff::1
4000::1 5f00::1 fc00::1 fd00::1 fd12:3456::1 fe80::1 fe80::1%eth0 fec0::1 ff02::1 ff0e::1
2606:4700::1%eth0
"""

_PUBLIC = """
1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.1 100.63.255.255 100.128.0.1 126.255.255.255 128.0.0.1
169.253.0.1 172.15.0.1 172.32.0.1 192.0.1.1 192.167.0.1 198.17.0.1 198.20.0.1 223.255.255.255
::ffff:8.8.8.8 64:ff9b::808:808 2001:200::1 2001:4860:4860::8888 2606:4700::1 2a00:1450::1
2003::1 2620:4f:8000::1
"""

REFUSED = _REFUSED.split()
PUBLIC = _PUBLIC.split()


@pytest.mark.parametrize("address", REFUSED)
def test_one_address_that_is_not_public_refuses_the_host(address: str) -> None:
    assert not is_public(ip_address(address))
    for addresses in ([address], ["8.8.8.8", address], [address, "2606:4700::1"]):
        with pytest.raises(NotAllowed, match="ENTREPOT_THINGS_ALLOWED"):
            check_addresses(HOST, [ip_address(each) for each in addresses], NOTHING)


def test_the_corpus_of_addresses_is_not_small() -> None:
    assert len(set(REFUSED)) >= 60


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_taken(address: str) -> None:
    check_addresses(HOST, [ip_address(address)], NOTHING)


def test_a_host_without_an_address_is_refused() -> None:
    with pytest.raises(NotAllowed, match="has no address"):
        check_addresses(HOST, [], NOTHING)


def test_a_listed_origin_may_have_any_address() -> None:
    listed = check_url("https://things.internal/a", INSIDE)
    check_addresses(listed, [ip_address("10.0.0.1"), ip_address("::1")], INSIDE)


@pytest.mark.parametrize(
    "address", ["10.20.3.4", "::ffff:10.20.3.4", "64:ff9b::a14:304", "fd00:5::1"]
)
def test_a_listed_network_may_be_dialled_in_all_its_forms(address: str) -> None:
    check_addresses(HOST, [ip_address(address), ip_address("8.8.8.8")], INSIDE)
    with pytest.raises(NotAllowed):
        check_addresses(HOST, [ip_address(address), ip_address("10.21.0.1")], INSIDE)


def test_a_wrapped_address_is_the_one_that_it_reaches() -> None:
    for text in ("::ffff:1.2.3.4", "64:ff9b::102:304", "1.2.3.4"):
        assert unwrapped(ip_address(text)) == ip_address("1.2.3.4")
    assert unwrapped(ip_address("2606:4700::1")) == ip_address("2606:4700::1")


@pytest.mark.parametrize(
    ("url", "origin", "target", "is_listed"),
    [
        ("https://things.example.com", "https://things.example.com", "/", False),
        (
            "https://THINGS.example.com:8443/a?b=@",
            "https://things.example.com:8443",
            "/a?b=@",
            False,
        ),
        ("HTTPS://things.example.com:443?a", "https://things.example.com", "/?a", False),
        ("https://8.8.8.8/x", "https://8.8.8.8", "/x", False),
        ("https://[2606:4700:0::1]:8443/", "https://[2606:4700::1]:8443", "/", False),
        ("http://127.0.0.1:9000/a", "http://127.0.0.1:9000", "/a", True),
        ("http://[0::1]:80/a", "http://[::1]", "/a", True),
        ("https://things.internal:443/", "https://things.internal", "/", True),
        ("https://10.20.0.1/", "https://10.20.0.1", "/", False),
    ],
)
def test_a_url_that_may_be_asked(url: str, origin: str, target: str, is_listed: bool) -> None:
    found = check_url(url, INSIDE)
    assert (found.origin, found.target, found.is_listed) == (origin, target, is_listed)
    assert origin_of(url) == origin


# Addresses inside, in the spellings that resolvers take; what no client sends; and other ports and
# schemes than those that are listed.
_NOT_ALLOWED = r"""
https://127.0.0.1 https://localhost https://localhost:8443/ https://a.localhost https://127.1
https://2130706433 https://0x7f000001 https://0x7f.1 https://0177.0.0.1 https://127.0.0.01
https://[::1] https://[::ffff:127.0.0.1] https://[::127.0.0.1] https://[64:ff9b::a9fe:a9fe]
https://[64:ff9b:1::7f00:1] https://[2002:7f00:1::] https://[2001:0:7f00:1::1] https://100.64.0.1
https://10.0.0.1 https://169.254.169.254/latest/meta-data/ https://224.0.0.1 https://[ff02::1]
https://[::1::1] https://[fe80::1%25eth0] https://[fe80::1%eth0] https://[fec0::1] https://[fd00::1]
https://①②⑦.⓪.⓪.①

https://user:secret@things.example.com https://user@things.example.com
https://things.example.com\@127.0.0.1/ https://things.example.com#@127.0.0.1/
https://things.example.com/a#b http://things.example.com file:///etc/passwd
gopher://things.example.com/ //things.example.com/ things.example.com https:things.example.com
https:// https://:443/ https://things.example.com:22/ https://things.example.com:25/
https://things.example.com:6379/ https://things.example.com:0/ https://things.example.com:65536/
https://things.example.com:+443/ https://things.example.com./ https://things..example.com/
https://-things.example.com/ https://thïngs.example.com/

http://127.0.0.1:9001 https://127.0.0.1:9000 http://things.internal http://10.20.0.1/
"""


@pytest.mark.parametrize(
    "url",
    [
        *_NOT_ALLOWED.split(),
        *("", "https://things.example.com/\r\nHost: a", "https://things.example.com/a b"),
        *(f"https://things.example.com/{'a' * 8000}", f"https://{'a' * 300}.example.com/"),
    ],
)
def test_a_url_that_may_not_be_asked(url: str) -> None:
    with pytest.raises(NotAllowed, match=r"."):
        check_url(url, INSIDE)

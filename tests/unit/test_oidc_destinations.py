"""Which URLs of identity providers are asked."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from cloudcore.identity.oidc.destinations import Destination, check_addresses, check_url, origin_of

INSIDE = ("http://127.0.0.1:9000", "https://sso.internal", "http://[::1]:80")


@pytest.mark.parametrize(
    ("url", "destination"),
    [
        ("https://login.example.com", Destination("login.example.com", 443, is_internal=False)),
        ("https://LOGIN.example.com:8443/a", Destination("login.example.com", 8443, False)),
        ("https://8.8.8.8/x", Destination("8.8.8.8", 443, is_internal=False)),
        ("http://127.0.0.1:9000/realms/a", Destination("127.0.0.1", 9000, is_internal=True)),
        ("https://sso.internal:443/", Destination("sso.internal", 443, is_internal=True)),
    ],
)
def test_a_url_that_may_be_asked(url: str, destination: Destination) -> None:
    assert check_url(url, INSIDE) == destination


@pytest.mark.parametrize(
    "url",
    [
        "",
        "login.example.com",
        "http://login.example.com",
        "ftp://login.example.com",
        "https://",
        "https://user@login.example.com",
        "https://user:password@login.example.com",
        "https://login.example.com/#a",
        "https://login.example.com/#",
        "https://login.example.com:99999",
        "https://login.example.com/a b",
        "https://login.example.com/\n",
        "https://lögin.example.com",
        f"https://login.example.com/{'a' * 1000}",
        # Not listed: another port, another scheme.
        "http://127.0.0.1:9001",
        "https://127.0.0.1:9000",
        "http://sso.internal",
        # Addresses that are not public, in all their spellings of a URL.
        "https://127.0.0.1",
        "https://10.0.0.1",
        "https://169.254.169.254/latest",
        "https://0.0.0.0",
        "https://[::1]",
        "https://[fd00::1]",
        "https://[fe80::1]",
        "https://[::ffff:10.0.0.1]",
    ],
)
def test_a_url_that_may_not_be_asked(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        check_url(url, INSIDE)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fd00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "64:ff9b::a00:1",
        "2002:a00:1::",
        "2001:0:a00:1::",
    ],
)
def test_one_address_that_is_not_public_refuses_the_host(address: str) -> None:
    both = [ip_address("8.8.8.8"), ip_address(address)]
    with pytest.raises(ValueError, match="ENTREPOT_OIDC_INTERNAL_ORIGINS"):
        check_addresses(Destination("login.example.com", 443, is_internal=False), both)
    check_addresses(Destination("sso.internal", 443, is_internal=True), both)


def test_public_addresses_are_taken() -> None:
    both = [ip_address("8.8.8.8"), ip_address("2606:4700::1")]
    check_addresses(Destination("login.example.com", 443, is_internal=False), both)


def test_an_origin_has_one_spelling() -> None:
    assert origin_of("HTTPS://Login.Example.com:443/a?b") == "https://login.example.com"
    assert origin_of("http://[::1]:80/") == "http://[::1]"
    assert origin_of("http://[::1]:8080/") == "http://[::1]:8080"

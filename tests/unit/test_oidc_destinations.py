"""Which URLs of identity providers are asked; tests/unit/test_outbound_destinations.py has more."""

from __future__ import annotations

import pytest

from cloudcore.identity.oidc.provider import check_url

INSIDE = ("http://127.0.0.1:9000", "https://sso.internal", "http://[::1]:80")


@pytest.mark.parametrize(
    "url",
    [
        *("https://login.example.com", "https://LOGIN.example.com:8443/a", "https://8.8.8.8/x"),
        *("http://127.0.0.1:9000/realms/a", "https://sso.internal:443/"),
    ],
)
def test_a_url_that_may_be_asked(url: str) -> None:
    check_url(url, INSIDE)


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


def test_the_operator_is_told_where_to_list_a_provider_inside() -> None:
    with pytest.raises(ValueError, match="ENTREPOT_OIDC_INTERNAL_ORIGINS"):
        check_url("https://10.0.0.1", INSIDE)

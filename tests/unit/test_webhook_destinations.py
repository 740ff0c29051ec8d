"""Where webhooks may be, and what `HttpClient.check_destination` says of a URL beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

import pytest

from cloudcore.outbound.destinations import Address, Allowed, NotAllowed, check_url
from cloudcore.outbound.http_client import HttpClient

WEBHOOKS = Allowed("WEBHOOK_ALLOWED", takes_plain_http=True)


@pytest.mark.parametrize(
    "url", ["http://192.0.32.7/", "http://192.0.32.7:8080/", "https://a.test/"]
)
def test_plain_http_is_for_purposes_that_take_it(url: str) -> None:
    assert check_url(url, WEBHOOKS).scheme == url.partition(":")[0]
    if url.startswith("http:"):
        with pytest.raises(NotAllowed, match="not https"):
            check_url(url, Allowed("UPSTREAM_ALLOWED"))


@pytest.mark.parametrize("scheme", ["http", "https", "HTTP"])
@pytest.mark.parametrize("rest", ["///x", "//a.test./", "a.test"])
def test_a_malformed_url_is_told_the_form_of_its_own_scheme(scheme: str, rest: str) -> None:
    with pytest.raises(NotAllowed, match=f"write it as {scheme.lower()}://HOST/…, without a dot"):
        check_url(f"{scheme}:{rest}", WEBHOOKS)


@pytest.mark.parametrize("url", ["http://192.0.32.7:443/", "https://192.0.32.7:80/"])
def test_a_port_of_the_system_is_only_that_of_the_scheme(url: str) -> None:
    with pytest.raises(NotAllowed, match="port"):
        check_url(url, WEBHOOKS)


@pytest.mark.parametrize(
    ("addresses", "is_refused"),
    [(["192.0.32.7"], False), (["192.0.32.7", "10.0.0.1"], True), (["::1"], True), (None, False)],
)
async def test_all_addresses_of_a_name_are_vetted_and_one_without_any_passes(
    addresses: list[str] | None, is_refused: bool
) -> None:
    async def resolve(_host: str, _port: int) -> Sequence[Address]:
        if addresses is None:
            raise OSError("no such name")
        return [ip_address(each) for each in addresses]

    client = HttpClient(WEBHOOKS, resolve=resolve)
    if is_refused:
        with pytest.raises(NotAllowed, match="not public"):
            await client.check_destination("http://name.test/")
    else:
        assert (await client.check_destination("http://name.test/")).host == "name.test"

"""A proxy that is not trusted is told of once, and nothing else is taken for one."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from cloudcore.serving.clients import ENOUGH, ProxyWatch

TRUSTED = (ip_network("127.0.0.0/8"),)
FORWARDED = [(b"host", b"x"), (b"x-forwarded-for", b"203.0.113.9")]
DIRECT = [(b"host", b"x")]


def warnings(
    caplog: pytest.LogCaptureFixture, *requests: tuple[str, list[tuple[bytes, bytes]]]
) -> list[str]:
    watch = ProxyWatch()
    for peer, headers in requests:
        watch.note(peer, headers, TRUSTED)
    return [record.getMessage() for record in caplog.records]


def test_one_peer_that_forwards_all_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    (told,) = warnings(caplog, *[("10.0.0.1", FORWARDED)] * (3 * ENOUGH))
    assert "ENTREPOT_TRUSTED_PROXIES=10.0.0.1" in told


@pytest.mark.parametrize("header", [b"forwarded", b"via", b"x-real-ip"])
def test_any_header_of_proxies_will_do(header: bytes, caplog: pytest.LogCaptureFixture) -> None:
    assert len(warnings(caplog, *[("10.0.0.1", [(header, b"x")])] * ENOUGH)) == 1


@pytest.mark.parametrize(
    "requests",
    [
        [("10.0.0.1", DIRECT)] * 100,
        [("127.0.0.1", FORWARDED)] * 100,
        [("10.0.0.1", FORWARDED)] * (ENOUGH - 1),
        [("10.0.0.1", FORWARDED), ("10.0.0.2", FORWARDED)] * 100,
        [("127.0.0.1", FORWARDED), *[("10.0.0.1", FORWARDED)] * 100],
    ],
)
def test_what_is_no_untrusted_proxy_is_not_told(
    requests: list[tuple[str, list[tuple[bytes, bytes]]]], caplog: pytest.LogCaptureFixture
) -> None:
    assert warnings(caplog, *requests) == []


def test_checks_of_health_in_between_hide_nothing(caplog: pytest.LogCaptureFixture) -> None:
    requests = [("10.0.0.1", FORWARDED), ("10.0.0.2", DIRECT), ("127.0.0.1", DIRECT)] * ENOUGH
    assert len(warnings(caplog, *requests)) == 1

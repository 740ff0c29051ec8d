"""At which addresses upstreams are asked, and under which certificates."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from pathlib import Path

import pytest

from cloudcore.outbound.destinations import Address, Allowed, NotAllowed
from cloudcore.outbound.http_client import TIME_LIMITS, HttpClient
from cloudcore.outbound.http_connection import Unreachable
from registry.upstream.base import (
    UpstreamUnreachable,
)
from tests.certificates import self_signed
from tests.scripted_upstream import scripted_upstream
from tests.upstream_world import ask_of


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Return both event loops: the transports of uvloop, which serves, are of other classes."""
    return "asyncio", {"use_uvloop": request.param}


def resolving(*addresses: str) -> Callable[[str, int], Awaitable[Sequence[Address]]]:
    async def resolve(_host: str, _port: int) -> Sequence[Address]:
        return [ip_address(each) for each in addresses]

    return resolve


async def test_a_name_is_vetted_at_each_connection_by_all_its_addresses() -> None:
    """So rebinding, and a mixture of addresses, reach nothing inside."""
    found: list[list[str]] = [
        ["127.0.0.1"],
        ["8.8.8.8", "127.0.0.1"],
        ["2606:4700::1", "::ffff:127.0.0.1"],
        ["2606:4700::1", "fd00::1", "8.8.8.8"],
        ["64:ff9b::7f00:1"],
        [],
    ]
    with scripted_upstream() as inside:
        port = inside.url.rpartition(":")[2]
        for addresses in found:
            http = HttpClient(Allowed("ENTREPOT_UPSTREAM_ALLOWED"), resolve=resolving(*addresses))
            with pytest.raises(NotAllowed):
                async with http.request("GET", f"https://hub.example.com:{port}/v2/"):
                    pass
        assert inside.connections == 0


async def test_a_name_is_resolved_once_and_that_address_is_dialled() -> None:
    resolved: list[str] = []

    async def resolve(host: str, _port: int) -> Sequence[Address]:
        resolved.append(host)
        return [ip_address("127.0.0.1" if len(resolved) == 1 else "127.0.0.2")]

    with scripted_upstream() as inside:
        origin = f"http://hub.internal:{inside.url.rpartition(':')[2]}"
        http = HttpClient(Allowed("X", (origin,)), resolve=resolve)
        async with http.request("GET", f"{origin}/v2/") as answer:
            assert answer.head.status == 200
        http.close()
        assert resolved == ["hub.internal"]
        assert inside.asked[0].headers["host"] == origin.partition("://")[2]


async def test_the_certificate_is_that_of_the_name(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path, "hub.internal")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*certificate)
    trusting, resolve = ssl.create_default_context(cafile=certificate[0]), resolving("127.0.0.1")
    with scripted_upstream(tls=server) as inside:
        port = inside.url.rpartition(":")[2]
        names = ("hub.internal", "other.internal")
        allowed = Allowed("X", tuple(f"https://{name}:{port}" for name in names))
        http = HttpClient(allowed, resolve=resolve, tls=trusting)
        for _ in range(3):
            async with http.request("GET", f"https://hub.internal:{port}/v2/") as answer:
                assert await answer.read(100) == b"{}"
        assert inside.connections == 1
        with pytest.raises(Unreachable, match="TLS failed: Hostname mismatch") as refused:
            async with http.request("GET", f"https://other.internal:{port}/v2/"):
                pass
        assert refused.value.stage == "tls"
        http.close()
        doubting = HttpClient(allowed, resolve=resolve)
        with pytest.raises(Unreachable, match=r"TLS failed: self.signed"):
            async with doubting.request("GET", f"https://hub.internal:{port}/v2/"):
                pass
        assert len(inside.asked) == 3


@pytest.mark.parametrize(
    ("fault", "stage", "words"),
    [
        ("dns", "dns", "no connection within 0.2 seconds"),
        ("tls", "connect", "no connection within 0.2 seconds"),
        ("answer", "answer", "it did not answer within 0.2 seconds"),
    ],
)
async def test_a_host_that_is_slow_is_given_up_at_the_stage_where_it_is_slow(
    fault: str, stage: str, words: str
) -> None:
    async def resolve(_host: str, _port: int) -> Sequence[Address]:
        if fault == "dns":
            await asyncio.Event().wait()
        return [ip_address("127.0.0.1")]

    limits = TIME_LIMITS._replace(connect=0.2, head=0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts, and no more
        scheme = "https" if fault == "tls" else "http"
        origin = f"{scheme}://hub.internal:{silent.getsockname()[1]}"
        http = HttpClient(Allowed("X", (origin,)), resolve=resolve, limits=limits)
        with pytest.raises(Unreachable, match=words) as failed:
            async with http.request("GET", f"{origin}/v2/"):
                pass
        assert failed.value.stage == stage


async def test_an_address_that_is_slow_leaves_time_for_the_next(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path, "hub.internal")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*certificate)
    trusting = ssl.create_default_context(cafile=certificate[0])
    with scripted_upstream(tls=server) as inside:
        port = int(inside.url.rpartition(":")[2])
        origin = f"https://hub.internal:{port}"
        http = HttpClient(
            Allowed("X", (origin,)),
            resolve=resolving("127.0.0.2", "127.0.0.1"),
            tls=trusting,
            limits=TIME_LIMITS._replace(connect=2),
        )
        with socket.create_server(("127.0.0.2", port)):
            async with http.request("GET", f"{origin}/v2/") as answer:
                assert answer.head.status == 200
        http.close()


@pytest.mark.parametrize("value", ["a\r\nHost: b", "a\n", "é", "\0"])
async def test_a_header_that_would_begin_another_line_is_not_sent(value: str) -> None:
    with scripted_upstream() as inside:
        http = HttpClient(Allowed("X", (inside.url,)))
        with pytest.raises(ValueError, match="X-A"):
            async with http.request("GET", f"{inside.url}/v2/", {"X-A": value}):
                pass
        assert inside.asked == []


async def test_nobody_listens_and_a_name_is_unknown() -> None:
    with scripted_upstream() as gone:
        pass

    async def unknown(_host: str, _port: int) -> Sequence[Address]:
        raise OSError(-2, "Name or service not known")

    with ask_of(gone) as asked:
        with pytest.raises(UpstreamUnreachable, match="cannot be reached") as failed:
            await asked.client.ping(asked.remote())
        assert failed.value.stage == "tls"
    with ask_of(gone, resolve=unknown) as asked:
        remote = asked.remote()._replace(origin="https://hub.example.com")
        with pytest.raises(UpstreamUnreachable, match="Name or service not known") as failed:
            await asked.client.ping(remote)
        assert failed.value.stage == "dns"
        with pytest.raises(UpstreamUnreachable, match="ENTREPOT_UPSTREAM_ALLOWED"):
            await asked.client.ping(remote._replace(origin="https://10.0.0.1"))

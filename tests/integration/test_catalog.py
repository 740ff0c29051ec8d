"""The public catalogues on a whole install: for everyone, at a limited rate, with entity tags."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import httpx
import pytest

from cloudcore.keyring import create_root_key
from cloudcore.serving.dispatch import Dispatcher
from registry.composition.main import Registry, prepare
from registry.composition.planes import dispatcher
from registry.composition.serve import SERVE
from registry.settings.settings import Settings
from tests.databases import planted
from tests.inprocess import ManualClock

URL: Final = "http://registry.test"
PATHS: Final = ("/v1/regions", "/v1/prices")
LIMIT: Final = 60
HEADERS: Final = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")


@dataclass
class Site:
    """An install, and who asks it from where."""

    app: Dispatcher
    clock: ManualClock

    async def ask(
        self, path: str, method: str = "GET", peer: str = "198.51.100.7", **headers: str
    ) -> httpx.Response:
        transport = httpx.ASGITransport(cast("Any", self.app), client=(peer, 1))
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        async with httpx.AsyncClient(transport=transport, base_url=URL) as client:
            return await client.request(method, path, headers=given)


@asynccontextmanager
async def open_site(data: Path, **settings: str) -> AsyncIterator[Site]:
    """Open an install with these settings."""
    chosen = Settings(data=planted(data), public_url=URL, region="eu-1", **settings)  # type: ignore[arg-type]
    prepare(chosen)
    create_root_key(chosen.root_key)
    clock = ManualClock()
    async with Registry(chosen, SERVE, clock=clock).open_planes() as (_, planes):
        app = dispatcher(planes.data, planes.control)
        yield Site(app, clock)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """Return a plain install."""
    async with open_site(tmp_path / "data") as site:
        yield site


def rate_limits(answer: httpx.Response) -> tuple[int, ...]:
    return tuple(int(answer.headers[name]) for name in HEADERS)


async def test_the_packaged_catalogues_are_of_this_install(site: Site) -> None:
    (region,) = (await site.ask("/v1/regions")).json()["regions"]
    assert (region["name"], region["status"]) == ("eu-1", "available")
    assert set(region["endpoints"].values()) == {URL}
    prices = (await site.ask("/v1/prices")).json()["prices"]
    assert prices
    for price in prices:
        assert price.keys() == {"sku", "service", "region", "unit", "currency", "amount"}
        assert price["region"] == "eu-1"
        assert isinstance(price["amount"], str)


async def test_an_entity_tag_saves_the_body(site: Site) -> None:
    for path in PATHS:
        answer = await site.ask(path)
        etag = answer.headers["etag"]
        head = await site.ask(path, "HEAD")
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["etag"] == etag
        assert head.headers["content-length"] == str(len(answer.content))
        for condition in (etag, f"W/{etag}", f'"other", {etag}', "*"):
            same = await site.ask(path, If_None_Match=condition)
            assert (same.status_code, same.content) == (304, b"")
            assert same.headers["etag"] == etag
            assert "x-ratelimit-limit" not in same.headers
        for condition in ('"other"', etag.strip('"'), ""):
            assert (await site.ask(path, If_None_Match=condition)).status_code == 200
        # Of the requests above, none was free.
        assert rate_limits(await site.ask(path))[1] == LIMIT - 10


async def test_each_endpoint_and_each_caller_has_its_own_window(site: Site) -> None:
    for left in range(LIMIT - 1, -1, -1):
        answer = await site.ask("/v1/regions")
        assert (answer.status_code, rate_limits(answer)) == (200, (LIMIT, left, 60))
    site.clock.advance(20)
    refused = await site.ask("/v1/regions", "HEAD")
    assert refused.status_code == 429
    assert rate_limits(refused) == (LIMIT, 0, 40)
    assert refused.headers["retry-after"] == "40"
    assert rate_limits(await site.ask("/v1/prices"))[1] == LIMIT - 1
    assert rate_limits(await site.ask("/v1/regions", peer="203.0.113.1"))[1] == LIMIT - 1
    site.clock.advance(39)
    sooner = await site.ask("/v1/regions")  # which begins the window anew
    assert (sooner.status_code, sooner.headers["retry-after"]) == (429, "60")
    site.clock.advance(60)
    assert rate_limits(await site.ask("/v1/regions")) == (LIMIT, LIMIT - 1, 60)


async def test_the_address_is_what_a_trusted_proxy_names(tmp_path: Path) -> None:
    async with open_site(tmp_path / "data", trusted_proxies="10.0.0.0/8") as site:
        path, left = PATHS[0], []
        for peer, client in (
            ("10.0.0.1", "2001:db8::1"),
            ("10.0.0.1", "2001:db8::ffff"),  # the same network
            ("10.0.0.1", "2001:db8:0:1::1"),
            ("198.51.100.7", "2001:db8::1"),  # a stranger names whom it likes
        ):
            left.append(rate_limits(await site.ask(path, peer=peer, X_Forwarded_For=client))[1])
        assert left == [LIMIT - 1, LIMIT - 2, LIMIT - 1, LIMIT - 1]


async def test_nobody_else_has_the_headers(site: Site) -> None:
    for path in ("/healthz", "/v1/jwks", "/v1/openapi.json", "/v1/users", "/v1/nothing"):
        assert not set(HEADERS) & (await site.ask(path)).headers.keys()
    for method, status in (("POST", 405), ("DELETE", 405)):
        answer = await site.ask(PATHS[0], method)
        assert (answer.status_code, answer.headers["allow"]) == (status, "GET, HEAD")
        assert not set(HEADERS) & answer.headers.keys()


async def test_what_is_no_credential_is_counted_by_address(site: Site) -> None:
    path, left = PATHS[1], []
    for credential in ("Bearer nonsense", "Basic dTpw", "", "Bearer"):
        answer = await site.ask(path, Authorization=credential)
        assert answer.status_code == 200
        left.append(rate_limits(answer)[1])
    assert left == [LIMIT - 1, LIMIT - 2, LIMIT - 3, LIMIT - 4]


async def test_an_operator_lists_other_regions_and_prices(tmp_path: Path) -> None:
    file = tmp_path / "catalog.json"
    region = {"name": "eu-1", "display_name": "Europe", "status": "degraded", "endpoints": {}}
    price = {
        "sku": "storage.storage",
        "service": "storage",
        "region": "eu-1",
        "unit": "GiB-month",
        "currency": "EUR",
        "amount": "0.0200",
    }
    file.write_text(json.dumps({"regions": [region], "prices": [price]}))

    async with open_site(tmp_path / "data", catalog_file=str(file)) as site:
        assert (await site.ask("/v1/regions")).json() == {"regions": [region]}
        assert (await site.ask("/v1/prices")).json() == {"prices": [price]}

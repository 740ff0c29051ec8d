"""Pages of the origins that an operator lists may read ``/v1`` and ``/v2``; no others, no more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

import httpx
import pytest

from cloudcore.keyring import create_root_key
from registry.composition.cross_origin import CrossOriginReads
from registry.composition.dev import DEV
from registry.composition.main import Edition, PlaneApplications, Registry, prepare
from registry.composition.planes import dispatcher
from registry.composition.serve import SERVE
from registry.settings.settings import Settings
from tests.databases import planted

APP: Final = "https://app.example.com"
URL: Final = "http://registry.test"
READS: Final = ("/v1/repositories", "/v1/openapi.json", "/v2/", "/v2/acme/app/tags/list")
ASKED: Final = "Access-Control-Request-Method"

Ask = Callable[..., Awaitable[httpx.Response]]


@asynccontextmanager
async def open_site(
    data: Path, origins: str = "", edition: Edition = SERVE
) -> AsyncIterator[tuple[Ask, PlaneApplications]]:
    """Open an install whose operator lists these origins, with a way to ask it."""
    settings = Settings(data=planted(data), public_url=URL, cors_origins=origins)
    prepare(settings)
    create_root_key(settings.root_key)
    async with Registry(settings, edition).open_planes() as (_, planes):
        transport = httpx.ASGITransport(cast("Any", dispatcher(planes.data, planes.control)))
        async with httpx.AsyncClient(transport=transport, base_url=URL) as client:

            async def ask(method: str, path: str, **headers: str) -> httpx.Response:
                given = {name.replace("_", "-"): value for name, value in headers.items()}
                return await client.request(method, path, headers=given)

            yield ask, planes


@pytest.fixture(scope="module")
async def ask(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ask]:
    """Return a way to ask an install that lists two origins, which tests share."""
    data = tmp_path_factory.mktemp("cors") / "data"
    async with open_site(data, f"http://localhost:3000, {APP}") as (ask, _):
        yield ask


def cors_of(answer: httpx.Response) -> set[str]:
    return {name for name in answer.headers if name.startswith("access-control-")}


def told(answer: httpx.Response) -> tuple[int, dict[str, str]]:
    """Return what of an answer does not differ from one to the next."""
    changing = ("x-request-id", "content-length", "date")
    return answer.status_code, {k: v for k, v in answer.headers.items() if k not in changing}


async def test_a_listed_page_may_read_and_be_refused(ask: Ask) -> None:
    """Errors too are told, with the headers that a client goes by."""
    told = {
        *("Docker-Content-Digest", "Link", "X-Request-Id", "WWW-Authenticate"),
        *("Content-Range", "ETag"),
    }
    for path in READS:
        for method in ("GET", "HEAD"):
            headers = (await ask(method, path, Origin=APP)).headers
            assert headers["access-control-allow-origin"] == APP
            assert headers["vary"] == "Origin"
            assert told <= {*headers["access-control-expose-headers"].split(", ")}
            assert "access-control-allow-credentials" not in headers
        preflight = await ask("OPTIONS", path, Origin=APP, Access_Control_Request_Method="GET")
        headers = preflight.headers
        assert preflight.status_code == 204
        assert headers["access-control-allow-origin"] == APP
        assert headers["access-control-allow-methods"] == "GET, HEAD"
        assert "Authorization" in headers["access-control-allow-headers"]
        assert "Origin" in headers["vary"]
        assert "x-request-id" in headers


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_nothing_but_reads_is_for_other_origins(ask: Ask, method: str) -> None:
    for path in (*READS, "/v1/oauth/token", "/v2/token"):
        assert cors_of(await ask(method, path, Origin=APP)) == set()
        preflight = await ask("OPTIONS", path, Origin=APP, Access_Control_Request_Method=method)
        assert preflight.status_code == 405
        assert cors_of(preflight) == set()


async def test_pages_for_people_and_health_are_not_read(ask: Ask) -> None:
    for path in ("/healthz", "/console", "/v1/oauth/authorize", "/v1x", "/v20/", "/"):
        assert cors_of(await ask("GET", path, Origin=APP)) == set()
        preflight = await ask("OPTIONS", path, Origin=APP, Access_Control_Request_Method="GET")
        assert preflight.status_code in (404, 405)
        assert cors_of(preflight) == set()


async def test_who_is_not_listed_is_answered_as_ever(ask: Ask, tmp_path: Path) -> None:
    asked: list[tuple[str, str, dict[str, str]]] = [
        (method, path, {"Origin": origin, "Access_Control_Request_Method": "GET"})
        for method in ("GET", "OPTIONS", "POST")
        for path in READS
        for origin in ("https://evil.example", f"{APP}.evil.example", "null", APP.upper(), "*")
    ]
    async with open_site(tmp_path / "data") as (ask_where_none_is_listed, _):
        for method, path, headers in asked:
            answers = [
                told(await ask_it(method, path, **headers))
                for ask_it in (ask, ask_where_none_is_listed)
            ]
            for _, found in answers:
                found.pop("vary", None)
            assert answers[0] == answers[1]
            assert method != "OPTIONS" or answers[0][0] == 405


async def test_what_caches_keep_varies_with_the_origin(ask: Ask) -> None:
    for headers in ({}, {"Origin": "https://other.example"}):
        answer = await ask("GET", "/v1/openapi.json", **headers)
        assert (answer.headers["vary"], cors_of(answer)) == ("Origin", set())


async def test_nobody_pays_where_nothing_is_listed_and_dev_lets_nobody_in(tmp_path: Path) -> None:
    for name, edition, origins in (("serve", SERVE, ""), ("dev", DEV, APP)):
        async with open_site(tmp_path / name, origins, edition) as (ask, planes):
            assert cors_of(await ask("GET", "/v2/", Origin=APP)) == set()
        assert not isinstance(planes.data, CrossOriginReads)
        assert not isinstance(planes.control, CrossOriginReads)

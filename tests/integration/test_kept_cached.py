"""Kept answers of repositories of the pull-through cache are what the application would say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import pytest

from registry.distribution.app import DataPlane
from registry.distribution.auth import OpenAccess
from tests.databases import on_both_databases
from tests.integration.mirror_world import HANDLE, NAME, TTL, CachedWorld, open_cached
from tests.wired import WireClient, wired

pytestmark = on_both_databases
APP: Final = "team/app"
BY_TAG: Final = f"/v2/{NAME}/manifests/v1"


@pytest.fixture
async def cached(metadata_url: str) -> AsyncIterator[CachedWorld]:
    async with open_cached(metadata_url) as world:
        yield world


@pytest.fixture
async def client(cached: CachedWorld) -> AsyncIterator[WireClient]:
    """Return a client of a server that keeps answers."""
    async with wired(DataPlane(cached.ctx, OpenAccess(HANDLE)), cached.ctx) as made:
        yield made


async def test_an_answer_kept_while_another_asks_is_told_to_be_stale(
    cached: CachedWorld, client: WireClient
) -> None:
    upstream = cached.upstream
    upstream.tells_digest = upstream.tells_etag = False
    upstream.add_image(APP, "v1", layers=(b"layer",))
    await cached.pull("v1")
    cached.clock.advance(TTL)
    upstream.was_asked.clear()
    upstream.go_on.clear()
    looking = asyncio.create_task(cached.pull("v1"))
    await upstream.was_asked.wait()
    assert "warning" not in (await client.request("GET", BY_TAG)).headers
    upstream.instead = b"<html>"
    upstream.go_on.set()
    assert "warning" in (await looking).headers
    assert "warning" in (await client.request("GET", BY_TAG)).headers

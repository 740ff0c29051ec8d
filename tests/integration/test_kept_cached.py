"""Kept answers of repositories of the pull-through cache are what the application would say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Final

import pytest

from registry.distribution.app import DataPlane
from registry.distribution.auth import OpenAccess
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_INDEX, OCI_MANIFEST
from tests.integration.mirror_world import APP, HANDLE, NAME, TTL, CachedWorld
from tests.manifest_upstream import described
from tests.wired import WireClient, wired

BY_TAG: Final = f"/v2/{NAME}/manifests/v1"


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
    upstream.add_image(APP, "v1")
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


@pytest.mark.parametrize("is_pulled", [True, False], ids=["cached", "unknown"])
async def test_referrers_are_asked_for_once_a_rule_lets_them(
    cached: CachedWorld, client: WireClient, *, is_pulled: bool
) -> None:
    subject = cached.upstream.add_image(APP, "v1")
    signature = described(b"signature", OCI_MANIFEST)
    told = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [signature]}
    cached.upstream.referrers[subject] = json.dumps(told).encode()
    if is_pulled:
        await cached.pull("v1")
    await cached.switch(on=False)
    path = f"/v2/{NAME}/referrers/{subject}"
    assert (await client.request("GET", path)).json()["manifests"] == []
    await cached.switch(on=True)
    assert (await client.request("GET", path)).json()["manifests"] == [signature]


async def test_bytes_that_are_given_again_count(cached: CachedWorld, client: WireClient) -> None:
    data = b"a small blob"
    await cached.fill(data)
    path = f"/v2/{NAME}/blobs/{digest_of(data)}"
    for _ in range(3):
        await client.ask("GET", path)
        await client.ask("HEAD", path)
    await client.ask("GET", path, headers={"range": "bytes=0-1"})
    await client.ask("GET", path, headers={"range": "bytes=0-1"})
    await cached.ctx.pulls.flush()
    (served,) = cached.rows("SELECT sum(served_bytes) FROM pull_through_stats")[0]
    assert served == 3 * len(data) + 2 * 2

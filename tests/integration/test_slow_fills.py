"""Upstreams that drip, break off after every byte, or send without end: no fill lasts by that."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import pytest

from registry.distribution.app import DataPlane
from registry.distribution.auth import OpenAccess
from registry.oci.digest import digest_of
from registry.services.pull_through import fill_blob, missing_blobs
from registry.services.pull_through.fills import Fills, PaceLimits
from registry.settings.groups import Limits
from tests.dripping_upstream import Asked, DrippingUpstream
from tests.inprocess import Client
from tests.integration.fills_world import (
    HANDLE,
    Left,
    OpenFills,
    World,
    joined,
    path_of,
)

MIB: Final = 1024 * 1024
BLOB: Final = random.Random(3).randbytes(6 * MIB + 321)
DIGEST: Final = digest_of(BLOB)
SMALL: Final = b"a config, as small as they are"
NEVER_ENOUGH: Final = 1 << 40
"""Bytes per second that no upstream sends."""
SLOW: Final = PaceLimits(begin_seconds=0.3, lowest_rate=NEVER_ENOUGH)
UNREAD: Final = PaceLimits(unread_begin_seconds=0.3, unread_lowest_rate=NEVER_ENOUGH)

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def world_of(
    fills: OpenFills, upstream: DrippingUpstream, limits: PaceLimits
) -> AsyncIterator[World]:
    """Open a worker whose upstream may be as slow as the limits say."""
    small = Limits(inline_max_bytes=4096)
    async with fills(upstream, limits=small) as world:
        worker = world.workers[0]
        worker.ctx = replace(worker.ctx, fills=Fills(limits))
        worker.client = Client(DataPlane(worker.ctx, OpenAccess(HANDLE)))
        try:
            yield world
        finally:
            await worker.ctx.fills.aclose()


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a manifest list the blob."""
    monkeypatch.setattr(missing_blobs, "size_in_manifests", lambda *_: len(BLOB))


async def test_a_byte_now_and_then_is_not_enough(fills: OpenFills) -> None:
    upstream = DrippingUpstream(BLOB, piece_bytes=1)
    async with world_of(fills, upstream, SLOW) as world:
        await world.broken(DIGEST, "on average")
        assert len(upstream.asked) == 1
        assert await world.left() == Left(0, 0, 0)


async def test_an_upstream_that_breaks_off_after_every_byte_is_not_asked_without_end(
    fills: OpenFills,
) -> None:
    upstream = DrippingUpstream(BLOB)
    upstream.breaks_at = list(range(1, 1000))
    async with world_of(fills, upstream, SLOW) as world:
        await world.broken(DIGEST, "on average")
        assert len(upstream.asked) < 10


async def test_an_upstream_that_is_fast_on_average_may_pause(fills: OpenFills) -> None:
    upstream = DrippingUpstream(BLOB)
    upstream.breaks_at = [MIB, 2 * MIB, 3 * MIB]
    limits = PaceLimits(begin_seconds=0, lowest_rate=1000)
    async with world_of(fills, upstream, limits) as world:
        assert await world.workers[0].pull(DIGEST) == BLOB


@pytest.mark.usefixtures("listed")
async def test_a_fill_that_nobody_reads_ends_and_what_came_stays(fills: OpenFills) -> None:
    upstream = DrippingUpstream(BLOB, allowed=2 * MIB)
    async with world_of(fills, upstream, UNREAD) as world:
        found = await world.workers[0].fed(DIGEST)
        await anext(found.blob.stream())
        await found.blob.aclose()
        upstream.allow(2 * MIB + 7)
        await world.settled()
        assert await world.left() == Left(1, 1, 0)
        upstream.allow(None)
        assert await world.workers[0].pull(DIGEST) == BLOB
        assert upstream.asked == [Asked(DIGEST, 0), Asked(DIGEST, 2 * MIB + 7)]


@pytest.mark.usefixtures("listed")
async def test_who_comes_back_in_time_reads_on(fills: OpenFills) -> None:
    upstream = DrippingUpstream(BLOB, allowed=2 * MIB)
    async with world_of(fills, upstream, UNREAD) as world:
        left = await world.workers[0].fed(DIGEST)
        await anext(left.blob.stream())
        await left.blob.aclose()
        upstream.allow(3 * MIB)
        stream = (await world.workers[0].fed(DIGEST)).blob.stream()
        begun = await anext(stream)
        async with asyncio.timeout(60):
            while len(begun) < 3 * MIB:
                begun += await anext(stream)
            upstream.allow(None)
            assert begun + await joined(stream) == BLOB


async def test_a_fill_without_readers_that_is_fast_goes_on(fills: OpenFills) -> None:
    upstream = DrippingUpstream(BLOB, allowed=2 * MIB)
    async with world_of(fills, upstream, PaceLimits()) as world:
        found = await world.workers[0].fed(DIGEST)
        await found.blob.aclose()
        upstream.allow(None)
        await world.settled()
        assert await world.left() == Left(0, 0, 1)


@pytest.mark.parametrize("breaks_at", [[7], [7, 7, 9], [0, len(SMALL)]])
async def test_the_rest_of_a_small_blob_is_asked_for_too(
    fills: OpenFills, breaks_at: list[int]
) -> None:
    upstream = DrippingUpstream(SMALL)
    upstream.breaks_at = list(breaks_at)
    async with world_of(fills, upstream, PaceLimits()) as world:
        digest = digest_of(SMALL)
        assert await world.workers[0].pull(digest) == SMALL
        starts = [each.start for each in upstream.asked]
        assert starts == [0, *(each for each in breaks_at if each < len(SMALL))]
        assert world.files() == (0, 0)


async def test_a_small_blob_that_never_comes_whole_is_given_up(fills: OpenFills) -> None:
    upstream = DrippingUpstream(SMALL)
    upstream.breaks_at = [7] * 100
    async with world_of(fills, upstream, PaceLimits()) as world:
        answer = await world.workers[0].client.request("GET", path_of(digest_of(SMALL)))
        assert (answer.status, len(upstream.asked)) == (503, 3)
        assert await world.left() == Left(0, 0, 0)


@pytest.mark.parametrize("tells_size", [True, False])
async def test_a_blob_that_no_manifest_lists_may_not_be_long(
    fills: OpenFills, tells_size: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fill_blob, "MOST_UNLISTED_BYTES", 2 * MIB)
    upstream = DrippingUpstream(BLOB)
    upstream.tells_size = tells_size
    async with world_of(fills, upstream, PaceLimits()) as world:
        answer = await world.workers[0].client.request("GET", path_of(DIGEST))
        assert answer.status == 404
        assert answer.json()["errors"][0]["code"] == "BLOB_UNKNOWN"
        await world.settled()
        assert await world.left() == Left(0, 0, 0)
        assert world.files()[0] == 0
        monkeypatch.setattr(missing_blobs, "size_in_manifests", lambda *_: len(BLOB))
        assert await world.workers[0].pull(DIGEST) == BLOB


async def test_who_is_refused_or_has_the_blob_reads_no_fill(fills: OpenFills) -> None:
    upstream = DrippingUpstream(BLOB, allowed=2 * MIB)
    async with world_of(fills, upstream, UNREAD) as world:
        client, path = world.workers[0].client, path_of(DIGEST)
        for header, status in (("If-Match", 412), ("If-None-Match", 304), ("Range", 416)):
            value = {412: '"sha256:other"', 304: f'"{DIGEST}"', 416: f"bytes={len(BLOB)}-"}[status]
            answer = await client.request("GET", path, headers={header: value})
            assert answer.status == status
        upstream.allow(2 * MIB + 7)
        await world.settled()

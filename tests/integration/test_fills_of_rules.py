"""What an account holds comes to a cached repository from its own upstream alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import msgspec
import pytest

from registry.errors import BlobUnknown
from registry.oci.digest import Digest, digest_of
from registry.oci.media_types import OCI_MANIFEST
from registry.oci.reference import Name
from registry.services.pull_through.missing_blobs import FedBlob, get_missing_blob
from registry.upstream.base import FetchedManifest, Remote
from tests.databases import on_both_databases
from tests.dripping_upstream import DrippingUpstream
from tests.integration.fills_world import (
    ELSEWHERE,
    HANDLE,
    OTHER,
    REPOSITORY,
    Left,
    Worker,
    World,
    fills_world,
    path_of,
)

MIB: Final = 1024 * 1024
BLOB: Final = bytes(range(256)) * (6 * MIB // 256) + b"a secret"
DIGEST: Final = digest_of(BLOB)
PRIVATE: Final = "private/app"

pytestmark = pytest.mark.anyio


class LyingUpstream(DrippingUpstream):
    """Says that it has `DIGEST`, by HEAD and by a manifest, and sends what `blobs` has for it."""

    async def head_blob(self, remote: Remote, digest: Digest) -> int | None:
        self.heads.append(digest)
        return len(BLOB)

    async def get_manifest(self, remote: Remote, reference: str | Digest) -> FetchedManifest:
        described = {
            "mediaType": "application/octet-stream",
            "digest": str(DIGEST),
            "size": len(BLOB),
        }
        listing = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": described,
            "layers": [described],
        }
        return FetchedManifest(msgspec.json.encode(listing), OCI_MANIFEST, None)


async def push(worker: Worker, name: str = PRIVATE) -> None:
    """Push the blob to a repository of the account."""
    path = f"/v2/{HANDLE}/{name}/blobs/uploads/?digest={DIGEST}"
    answer = await worker.client.request("POST", path, body=BLOB)
    assert answer.status == 201, answer


async def list_it(worker: Worker, name: str) -> None:
    """Let a cached repository have a manifest that lists the blob."""
    answer = await worker.client.request("GET", f"/v2/{HANDLE}/{name}/manifests/latest")
    assert answer.status == 200, answer


async def settled(world: World) -> None:
    """Wait until no worker fetches anything."""
    for worker in world.workers:
        await worker.ctx.fills.settled()


@on_both_databases
@pytest.mark.parametrize(("is_listed", "seals"), [(False, True), (True, False)])
async def test_the_word_of_an_upstream_makes_no_pushed_blob_visible(
    metadata_url: str, tmp_path: Path, is_listed: bool, seals: bool
) -> None:
    upstream = LyingUpstream()
    async with fills_world(metadata_url, tmp_path, upstream, count=2, seals=seals) as world:
        for worker in world.workers:
            await push(worker)
        if is_listed:
            await list_it(world.workers[0], REPOSITORY)
        for worker in world.workers:
            answer = await worker.client.request("GET", path_of(DIGEST))
            assert answer.status == 404, "its upstream does not send it"
        assert await world.left() == Left(0, 0, 1)
        upstream.blobs[DIGEST] = BLOB
        assert await world.workers[0].pull(DIGEST) == BLOB
        await settled(world)
        assert len(upstream.asked) == 3, "in full, from its own upstream"
        assert await world.left() == Left(0, 0, 2)
        assert world.files() == (0, 1), "the account keeps one copy"
        for worker in world.workers:
            assert await worker.pull(DIGEST) == BLOB
            assert await worker.pull(DIGEST, PRIVATE) == BLOB
        assert len(upstream.asked) == 3


@on_both_databases
@pytest.mark.parametrize("seals", [False, True])
async def test_all_workers_read_the_fill_of_a_blob_that_the_account_has(
    metadata_url: str, tmp_path: Path, seals: bool
) -> None:
    upstream = DrippingUpstream(BLOB)
    upstream.allow(2 * MIB)
    async with fills_world(metadata_url, tmp_path, upstream, count=2, seals=seals) as world:
        await push(world.workers[0])
        streams = [(await fed(worker)).blob.stream() for worker in world.workers]
        begun = [await asyncio.wait_for(anext(stream), 60) for stream in streams]
        behind = [(await fed(worker)).blob.stream() for worker in world.workers]
        upstream.allow(None)
        for first, stream in zip(begun, streams, strict=True):
            assert first + b"".join([part async for part in stream]) == BLOB
        for stream in behind:
            assert b"".join([part async for part in stream]) == BLOB
        await settled(world)
        assert len(upstream.asked) == 1
        assert world.files() == (0, 1)


async def fed(worker: Worker, repository: str = REPOSITORY) -> FedBlob:
    """Return a blob that is being fetched."""
    name = Name(HANDLE, repository)
    found = await get_missing_blob(worker.ctx, name, DIGEST, BlobUnknown("it is not here"))
    assert isinstance(found, FedBlob)
    return found


@on_both_databases
@pytest.mark.parametrize("number", [0, 1])
async def test_a_rule_has_nothing_of_what_another_one_fetches_or_has_fetched(
    metadata_url: str, tmp_path: Path, number: int
) -> None:
    upstream = LyingUpstream()
    upstream.blobs[DIGEST] = BLOB
    upstream.allow(MIB)
    async with fills_world(metadata_url, tmp_path, upstream, count=2) as world:
        worker = world.workers[number]
        await list_it(worker, ELSEWHERE)
        begun = await fed(world.workers[0])
        had = upstream.blobs.pop(DIGEST)
        assert (await worker.client.request("GET", path_of(DIGEST, ELSEWHERE))).status == 404
        upstream.allow(None)
        assert b"".join([part async for part in begun.blob.stream()]) == BLOB
        await settled(world)
        assert (await worker.client.request("GET", path_of(DIGEST, ELSEWHERE))).status == 404
        assert await worker.pull(DIGEST, OTHER) == BLOB, "it is under the same rule"
        assert len(upstream.asked) == 3
        upstream.blobs[DIGEST] = had
        assert await worker.pull(DIGEST, ELSEWHERE) == BLOB
        await settled(world)
        assert len(upstream.asked) == 4
        assert world.files() == (0, 1)

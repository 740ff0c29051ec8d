"""What an account holds comes to a cached repository from its own upstream alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Concatenate, Final

import msgspec
import pytest

from cloudcore.db.base import Connection, P, T
from registry.oci.digest import Digest, digest_of
from registry.oci.media_types import OCI_MANIFEST
from registry.oci.reference import Name
from registry.services.pull_through import missing_blobs
from registry.upstream.base import BlobStream, FetchedManifest, NotUpstream, Remote
from tests.databases import on_both_databases
from tests.dripping_upstream import DrippingUpstream
from tests.inprocess import ManualClock
from tests.integration.fills_world import (
    ELSEWHERE,
    HANDLE,
    OTHER,
    REPOSITORY,
    Left,
    MortalDatabase,
    OpenFills,
    Worker,
    joined,
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


class OfOne(DrippingUpstream):
    """An upstream whose blobs are in one repository alone."""

    async def head_blob(self, remote: Remote, digest: Digest) -> int | None:
        _check(remote)
        return await super().head_blob(remote, digest)

    @asynccontextmanager
    async def open_blob(
        self, remote: Remote, digest: Digest, start: int = 0
    ) -> AsyncIterator[BlobStream]:
        _check(remote)
        async with super().open_blob(remote, digest, start) as stream:
            yield stream


def _check(remote: Remote) -> None:
    if not REPOSITORY.endswith(remote.repository):
        raise NotUpstream


class Late(MortalDatabase):
    """A database whose answer to what there is for `OTHER` comes late."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type] # as its base has it
        self.has_looked = asyncio.Event()
        self.go_on = asyncio.Event()

    async def read(
        self, query: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        found = await super().read(query, *args, **kwargs)
        if query.__name__ == "_find_place" and Name(HANDLE, OTHER) in args:
            self.has_looked.set()
            await self.go_on.wait()
        return found


async def push(worker: Worker, name: str = PRIVATE) -> None:
    """Push the blob to a repository of the account."""
    path = f"/v2/{HANDLE}/{name}/blobs/uploads/?digest={DIGEST}"
    answer = await worker.client.request("POST", path, body=BLOB)
    assert answer.status == 201, answer


async def list_it(worker: Worker, name: str) -> None:
    """Let a cached repository have a manifest that lists the blob."""
    answer = await worker.client.request("GET", f"/v2/{HANDLE}/{name}/manifests/latest")
    assert answer.status == 200, answer


@on_both_databases
@pytest.mark.parametrize(("is_listed", "seals"), [(False, True), (True, False)])
async def test_the_word_of_an_upstream_makes_no_pushed_blob_visible(
    fills: OpenFills, is_listed: bool, seals: bool
) -> None:
    upstream = LyingUpstream()
    async with fills(upstream, count=2, seals=seals) as world:
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
        await world.settled()
        assert len(upstream.asked) == 3, "in full, from its own upstream"
        assert await world.left() == Left(0, 0, 2)
        assert world.files() == (0, 1), "the account keeps one copy"
        for worker in world.workers:
            assert await worker.pull(DIGEST) == BLOB
            assert await worker.pull(DIGEST, PRIVATE) == BLOB
        assert len(upstream.asked) == 3


@pytest.mark.parametrize("seals", [False, True])
async def test_all_workers_read_the_fill_of_a_blob_that_the_account_has(
    fills: OpenFills, seals: bool
) -> None:
    upstream = DrippingUpstream(BLOB, allowed=2 * MIB)
    async with fills(upstream, count=2, seals=seals) as world:
        await push(world.workers[0])
        streams = [(await worker.fed(DIGEST)).blob.stream() for worker in world.workers]
        begun = [await asyncio.wait_for(anext(stream), 60) for stream in streams]
        behind = [(await worker.fed(DIGEST)).blob.stream() for worker in world.workers]
        upstream.allow(None)
        for first, stream in zip(begun, streams, strict=True):
            assert first + await joined(stream) == BLOB
        for stream in behind:
            assert await joined(stream) == BLOB
        await world.settled()
        assert len(upstream.asked) == 1
        assert world.files() == (0, 1)


@on_both_databases
@pytest.mark.parametrize("number", [0, 1])
async def test_a_rule_has_nothing_of_what_another_one_fetches_or_has_fetched(
    fills: OpenFills, number: int
) -> None:
    upstream = LyingUpstream()
    upstream.blobs[DIGEST] = BLOB
    upstream.allow(MIB)
    async with fills(upstream, count=2) as world:
        worker = world.workers[number]
        await list_it(worker, ELSEWHERE)
        begun = await world.workers[0].fed(DIGEST)
        had = upstream.blobs.pop(DIGEST)
        assert (await worker.client.request("GET", path_of(DIGEST, ELSEWHERE))).status == 404
        upstream.allow(None)
        assert await joined(begun.blob.stream()) == BLOB
        await world.settled()
        assert (await worker.client.request("GET", path_of(DIGEST, ELSEWHERE))).status == 404
        assert await worker.pull(DIGEST, OTHER) == BLOB, "it is under the same rule"
        assert len(upstream.asked) == 3
        upstream.blobs[DIGEST] = had
        assert await worker.pull(DIGEST, ELSEWHERE) == BLOB
        await world.settled()
        assert len(upstream.asked) == 4
        assert world.files() == (0, 1)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("kind", [OfOne, DrippingUpstream])
async def test_a_fill_that_has_just_begun_is_for_another_repository_if_its_upstream_says_so(
    fills: OpenFills, number: int, kind: type[DrippingUpstream]
) -> None:
    upstream = kind(BLOB, allowed=MIB)
    async with fills(upstream, count=2, around=Late) as world:
        worker = world.workers[number]
        late = worker.ctx.database
        assert isinstance(late, Late)
        pull = asyncio.create_task(worker.client.request("GET", path_of(DIGEST, OTHER)))
        async with asyncio.timeout(60):
            await late.has_looked.wait()
            begun = await world.workers[0].fed(DIGEST)
            late.go_on.set()
            if kind is OfOne:
                assert (await pull).status == 404, "its own upstream does not have it"
            else:
                await upstream.was_asked.wait()
            upstream.allow(None)
            assert await joined(begun.blob.stream()) == BLOB
            answer = await pull
        if kind is DrippingUpstream:
            assert (answer.status, answer.body) == (200, BLOB)
            assert await worker.pull(DIGEST, OTHER) == BLOB
        assert len(upstream.asked) == 1
        assert await world.left() == Left(0, 0, 1 if kind is OfOne else 2)


@pytest.mark.parametrize(("name", "days"), [(OTHER, 0), (REPOSITORY, 8)], ids=["other", "old"])
async def test_what_came_of_a_blob_is_not_gone_on_with(
    fills: OpenFills, name: str, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For another repository, whose upstream has not sent it, or after days."""
    monkeypatch.setattr(missing_blobs, "size_in_manifests", lambda *_: len(BLOB))
    upstream = DrippingUpstream(BLOB)
    upstream.breaks_at = [5 * MIB] * 3
    async with fills(upstream) as world:
        await world.broken(DIGEST, "reset")
        worker = world.workers[0]
        assert isinstance(worker.ctx.clock, ManualClock)
        worker.ctx.clock.advance(days * 24 * 3600)
        upstream.asked.clear()
        assert await worker.pull(DIGEST, name) == BLOB
        assert [each.start for each in upstream.asked] == [0]
        assert await world.left() == Left(0, 0, 1)
        assert world.files() == (0, 1)

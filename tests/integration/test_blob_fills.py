"""Blobs of cached repositories, fetched once and read while they come, by several workers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Final

import pytest

from cloudcore.clock import MICROSECONDS
from cloudcore.errors import PlatformError
from cloudcore.quotas.limits import QuotaUse, put_limit
from registry.blobstore.base import StagedDropped
from registry.metadata.pull_through.rules import find_rule_for
from registry.metadata.quotas import COUNTED_BYTES
from registry.metadata.repositories.repository import find_account, find_repository
from registry.oci.digest import digest_of
from registry.quotas import BLOB_BYTES
from registry.services.pull_through import missing_blobs
from registry.services.pull_through.feed import Rewound
from registry.services.pull_through.upstream_states import BROKEN, conditions
from registry.settings.groups import Limits
from registry.upstream.base import (
    UpstreamBroken,
    UpstreamLimited,
    UpstreamRefused,
    UpstreamUnreachable,
)
from tests.databases import on_both_databases
from tests.dripping_upstream import Asked, DrippingUpstream
from tests.inprocess import START
from tests.integration.fills_world import (
    HANDLE,
    OTHER,
    REPOSITORY,
    Left,
    OpenFills,
    joined,
    path_of,
)

MIB: Final = 1024 * 1024
BLOB: Final = random.Random(1).randbytes(11 * MIB + 12345)
DIGEST: Final = digest_of(BLOB)
SMALL: Final = b"a config, as small as they are"
SMALL_DIGEST: Final = digest_of(SMALL)
NONE: Final = Left(0, 0, 0)
ONE: Final = Left(0, 0, 1)

sealed_on_sqlite = pytest.mark.parametrize(
    ("database_url", "seals"),
    [("sqlite", True), pytest.param("postgresql", False, marks=pytest.mark.postgresql)],
    indirect=["database_url"],
)
"""With `on_both_databases`: neither has to do with the other."""


async def cut_off(stream: AsyncIterator[bytes]) -> bytes:
    """Return the bytes of a stream that raises before its end."""
    taken = b""
    try:
        async for part in stream:
            taken += part
    except (PlatformError, StagedDropped, Rewound):
        return taken
    raise AssertionError("it came to its end")


async def take(stream: AsyncIterator[bytes], count: int) -> bytes:
    """Return at least `count` bytes of a stream."""
    taken = b""
    while len(taken) < count:
        taken += await asyncio.wait_for(anext(stream), 60)
    return taken


@on_both_databases
@sealed_on_sqlite
async def test_many_readers_of_several_workers_cost_one_fetch(
    fills: OpenFills, seals: bool
) -> None:
    upstream = DrippingUpstream(BLOB, allowed=3 * MIB)
    async with fills(upstream, count=3, seals=seals) as world:
        pulls = [asyncio.create_task(world.workers[n % 3].pull(DIGEST)) for n in range(12)]
        late = world.workers[1]
        begun = await take((await late.fed(DIGEST)).blob.stream(), MIB)
        assert BLOB.startswith(begun), "it comes before the upstream has sent all"
        upstream.allow(None)
        assert all(body == BLOB for body in await asyncio.gather(*pulls))
        assert await late.pull(DIGEST) == BLOB
        assert upstream.asked == [Asked(DIGEST, 0)]
        assert await world.left() == ONE
        assert world.files() == (0, 1)


@pytest.mark.parametrize("worker", [0, 1])
async def test_first_bytes_come_as_the_upstream_sends_them(fills: OpenFills, worker: int) -> None:
    upstream = DrippingUpstream(BLOB, allowed=1)
    async with fills(upstream, count=2, seals=True) as world:
        first = (await world.workers[0].fed(DIGEST)).blob.stream()
        assert await take(first, 1) == BLOB[:1]
        upstream.allow(2 * MIB + 5)
        found = await world.workers[worker].fed(DIGEST)
        assert found.size == len(BLOB)
        # Another worker sees whole MiB.
        count = 2 * MIB + 5 * (worker == 0)
        assert await take(found.blob.stream(), count) == BLOB[:count]
        upstream.allow(None)


@pytest.mark.parametrize("where", [0, 1])
async def test_readers_that_leave_do_not_stop_the_fill(fills: OpenFills, where: int) -> None:
    upstream = DrippingUpstream(BLOB, allowed=MIB)
    async with fills(upstream, count=2) as world:
        pull = asyncio.create_task(world.workers[0].pull(DIGEST))
        stream = (await world.workers[where].fed(DIGEST)).blob.stream()
        await take(stream, MIB)
        pull.cancel()
        await stream.aclose()  # type: ignore[attr-defined] # it is a generator
        upstream.allow(None)
        assert await world.workers[1 - where].pull(DIGEST) == BLOB
        assert upstream.asked == [Asked(DIGEST, 0)]


async def test_small_blobs_go_inline(fills: OpenFills) -> None:
    upstream = DrippingUpstream(SMALL, b"")
    limits = Limits(inline_max_bytes=4096)
    async with fills(upstream, count=2, seals=True, limits=limits) as world:
        bodies = await asyncio.gather(*(world.workers[n % 2].pull(SMALL_DIGEST) for n in range(10)))
        assert set(bodies) == {SMALL}
        assert upstream.asked == [Asked(SMALL_DIGEST, 0)]
        assert await world.workers[1].pull(digest_of(b"")) == b""
        assert await world.left() == Left(0, 0, 2)
        assert world.files() == (0, 0)


@pytest.mark.parametrize("stored", [False, True])
async def test_answers_are_those_of_stored_blobs(fills: OpenFills, stored: bool) -> None:
    upstream = DrippingUpstream(BLOB)
    async with fills(upstream) as world:
        client = world.workers[0].client
        if stored:
            await world.workers[0].pull(DIGEST)
        size = len(BLOB)

        async def ask(method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            answer = await client.request(method, path_of(DIGEST), headers=named)
            kept = {k: v for k, v in answer.headers.items() if k != "x-request-id"}
            return answer.status, kept, answer.body

        always = {
            "docker-distribution-api-version": "registry/2.0",
            "docker-content-digest": DIGEST,
            "etag": f'"{DIGEST}"',
            "cache-control": "private, max-age=31536000, immutable",
        }
        whole = always | {
            "content-type": "application/octet-stream",
            "accept-ranges": "bytes",
            "content-length": str(size),
        }
        assert await ask("HEAD") == (200, whole, b"")
        assert await ask("HEAD", if_none_match=f'"{DIGEST}"') == (304, always, b"")
        assert await ask(if_none_match=f'"{DIGEST}"') == (304, always, b"")
        for span, start, stop in (("5-11", 5, 12), ("-3", size - 3, size)):
            place = {
                "content-length": str(stop - start),
                "content-range": f"bytes {start}-{stop - 1}/{size}",
            }
            assert await ask(range=f"bytes={span}") == (206, whole | place, BLOB[start:stop])
        assert (await ask(range=f"bytes={size}-"))[0] == 416
        assert (await ask(if_match='"sha256:x"'))[0] == 412
        assert await ask() == (200, whole, BLOB)
        assert upstream.asked == [Asked(DIGEST, 0)]
        assert upstream.heads == ([] if stored else [DIGEST] * 2)


@pytest.mark.parametrize("where", [0, 1])
async def test_wrong_bytes_are_cut_before_the_last_and_kept_nowhere(
    fills: OpenFills, where: int
) -> None:
    upstream = DrippingUpstream()
    wrong = BLOB[:-1] + bytes([BLOB[-1] ^ 1])
    upstream.blobs[DIGEST] = wrong
    upstream.allow(2 * MIB)
    async with fills(upstream, count=2, seals=True) as world:
        filling = await world.workers[0].fed(DIGEST)
        found = filling if where == 0 else await world.workers[1].fed(DIGEST)
        parts = [
            (await world.workers[where].fed(DIGEST)).blob.stream(start, stop)
            for start, stop in ((0, MIB), (MIB, None))
        ]
        upstream.allow(None)
        assert len(await cut_off(found.blob.stream())) < len(BLOB)
        first, rest = [await cut_off(stream) for stream in parts]
        assert len(first) < MIB
        assert len(rest) < len(BLOB) - MIB
        await world.settled()
        assert await world.left() == NONE
        assert world.files() == (0, 0)
        rule = await world.database.read(find_rule_for, HANDLE, REPOSITORY)
        assert rule is not None
        noted = await world.database.read(conditions, [rule.id], 0)
        assert [fault.code for fault in noted[rule.id].faults] == [BROKEN]
        upstream.blobs[DIGEST] = BLOB
        assert await world.workers[where].pull(DIGEST) == BLOB


@pytest.mark.parametrize("size", [len(BLOB) - 1, len(BLOB) + 1])
async def test_a_wrong_length_is_no_blob(fills: OpenFills, size: int) -> None:
    upstream = DrippingUpstream(BLOB)
    upstream.said_size = size
    async with fills(upstream) as world:
        with pytest.raises(Exception, match=r"longer|early"):
            await world.workers[0].pull(DIGEST)
        assert world.files()[1] == 0
        assert (await world.left()).links == 0


HALF, TWICE = len(BLOB) // 2, len(BLOB) * 2


@pytest.mark.parametrize(
    ("size", "says_416"),
    [(HALF, True), (HALF, False), (TWICE, True), (TWICE, False), (None, True)],
)
async def test_what_came_of_a_wrong_length_stops_no_later_pull(
    fills: OpenFills, size: int | None, says_416: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page in between was cut off, say: the rest of it is at no upstream."""
    listed = 3 * len(BLOB) if size else None  # of what no manifest lists, nothing is kept
    monkeypatch.setattr(missing_blobs, "size_in_manifests", lambda *_: listed)
    upstream = DrippingUpstream(BLOB)
    upstream.said_size, upstream.tells_size = size, size is not None
    upstream.breaks_at = [2 * MIB] * 3
    async with fills(upstream) as world:
        await world.broken(DIGEST, "reset")
        upstream.said_size, upstream.tells_size = None, True
        if says_416:
            upstream.failure = UpstreamBroken("it answered with status 416")
            upstream.failure.http_status = 416
        await world.broken(DIGEST, r"another length|416")
        upstream.failure = None
        assert await world.workers[0].pull(DIGEST) == BLOB
        assert upstream.asked[-1] == Asked(DIGEST, 0)
        assert await world.left() == ONE


async def test_an_error_page_does_not_end_what_came_of_the_listed_length(
    fills: OpenFills, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing_blobs, "size_in_manifests", lambda *_: len(BLOB))
    upstream = DrippingUpstream(BLOB)
    upstream.breaks_at = [2 * MIB] * 3
    async with fills(upstream) as world:
        await world.broken(DIGEST, "reset")
        upstream.said_size = 500
        await world.broken(DIGEST, "another length")
        upstream.said_size = None
        assert await world.workers[0].pull(DIGEST) == BLOB
        assert upstream.asked[-1] == Asked(DIGEST, 2 * MIB)


@pytest.mark.parametrize("takes_ranges", [True, False])
async def test_an_upstream_that_breaks_off_is_asked_for_the_rest(
    fills: OpenFills, takes_ranges: bool
) -> None:
    upstream = DrippingUpstream(BLOB)
    upstream.takes_ranges = takes_ranges
    upstream.breaks_at = [MIB + 7, 9 * MIB]
    async with fills(upstream) as world:
        assert await world.workers[0].pull(DIGEST) == BLOB
        assert upstream.asked == [Asked(DIGEST, at) for at in (0, MIB + 7, 9 * MIB)]


@pytest.mark.parametrize("is_listed", [True, False])
async def test_an_upstream_that_stays_away_leaves_what_came_of_a_listed_blob_to_the_next_pull(
    fills: OpenFills, is_listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = len(BLOB) if is_listed else None
    monkeypatch.setattr(missing_blobs, "size_in_manifests", lambda *_: listed)
    upstream = DrippingUpstream(BLOB)
    upstream.breaks_at = [5 * MIB] * 3
    async with fills(upstream, count=2, seals=True) as world:
        await world.broken(DIGEST, "reset")
        assert (await world.left()).uploads == int(is_listed)
        upstream.asked.clear()
        assert await world.workers[1].pull(DIGEST) == BLOB
        assert upstream.asked == [Asked(DIGEST, 5 * MIB if is_listed else 0)]
        assert await world.left() == ONE


@pytest.mark.parametrize(
    ("failure", "seconds"),
    [
        (UpstreamUnreachable("no route"), "30"),
        (UpstreamRefused("it wants another password"), "30"),
        (UpstreamLimited("too many pulls", START + 3600 * MICROSECONDS), None),
    ],
)
async def test_an_upstream_without_an_answer_is_503(
    fills: OpenFills, failure: Exception, seconds: str | None
) -> None:
    upstream = DrippingUpstream(BLOB)
    upstream.failure = failure  # type: ignore[assignment]
    async with fills(upstream) as world:
        for method in ("GET", "HEAD"):
            answer = await world.workers[0].client.request(method, path_of(DIGEST))
            assert answer.status == 503
            retry_after = answer.headers["retry-after"]
            assert retry_after == seconds if seconds else 3500 < int(retry_after) <= 3600
            if method == "GET":
                assert answer.codes == ["UNKNOWN"]
        assert await world.left() == NONE


@pytest.mark.parametrize("is_listed", [True, False])
async def test_what_a_full_account_does_not_have_yet_is_refused(
    fills: OpenFills, is_listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has is pulled as ever."""
    sizes = {SMALL_DIGEST: len(SMALL), DIGEST: len(BLOB)} if is_listed else {}
    monkeypatch.setattr(missing_blobs, "size_in_manifests", lambda *given: sizes.get(given[-1]))
    upstream = DrippingUpstream(SMALL, BLOB)
    async with fills(upstream) as world:
        worker = world.workers[0]
        account = await world.database.read(find_account, HANDLE)
        assert account is not None
        most = len(SMALL) + len(BLOB) - 1
        await world.database.write(put_limit, account.id, BLOB_BYTES.name, most, 1)
        assert await worker.pull(SMALL_DIGEST) == SMALL
        upstream.asked.clear()
        if is_listed:
            answer = await worker.client.request("GET", path_of(DIGEST))
            assert (answer.status, answer.codes) == (403, ["DENIED"])
            detail = {"quota": "registry_bytes", "limit": most, "used": len(SMALL)}
            assert answer.json()["errors"][0]["detail"] == detail
            assert upstream.asked == []
        else:  # its length is found out as it comes
            assert len(await cut_off((await worker.fed(DIGEST)).blob.stream())) < len(BLOB)
        assert await worker.pull(SMALL_DIGEST) == SMALL
        assert await world.left() == ONE
        await world.database.write(put_limit, account.id, BLOB_BYTES.name, most + 1, 1)
        assert await worker.pull(DIGEST) == BLOB
        assert await world.database.read(COUNTED_BYTES.read, account.id) == QuotaUse(
            most + 1, most + 1, last_level=100
        )


async def test_what_the_upstream_has_not_is_404(fills: OpenFills) -> None:
    async with fills(DrippingUpstream()) as world:
        for method in ("HEAD", "GET"):
            answer = await world.workers[0].client.request(method, path_of(DIGEST))
            assert answer.status == 404
        assert answer.codes
        assert await world.left() == NONE


async def test_a_blob_may_be_pulled_before_any_image_of_its_repository(fills: OpenFills) -> None:
    new = "hub/team/new"
    upstream = DrippingUpstream(BLOB)
    async with fills(upstream) as world:
        worker = world.workers[0]
        for digest, method, status in (
            (SMALL_DIGEST, "GET", 404),
            (DIGEST, "HEAD", 200),
            (DIGEST, "GET", 200),
        ):
            there = await world.database.read(find_repository, HANDLE, new)
            assert there is None, "its upstream has not sent anything for it"
            answer = await worker.client.request(method, path_of(digest, new))
            assert answer.status == status
        assert answer.body == BLOB
        there = await world.database.read(find_repository, HANDLE, new)
        assert there is not None
        assert there.is_cached


async def test_bytes_that_were_staged_and_are_lost_are_fetched_anew(
    fills: OpenFills, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing_blobs, "size_in_manifests", lambda *_: len(BLOB))
    upstream = DrippingUpstream(BLOB)
    upstream.breaks_at = [5 * MIB] * 3
    async with fills(upstream) as world:
        await world.broken(DIGEST, "reset")
        (world.folder / "uploads" / (await world.fill()).upload.stage_id).unlink()
        upstream.asked.clear()
        assert await world.workers[0].pull(DIGEST) == BLOB
        assert upstream.asked == [Asked(DIGEST, 0)]
        assert await world.left() == ONE


async def test_bytes_of_the_account_are_linked_only_if_the_upstream_has_them(
    fills: OpenFills,
) -> None:
    upstream = DrippingUpstream(BLOB)
    async with fills(upstream, seals=True) as world:
        worker = world.workers[0]
        await worker.pull(DIGEST)
        had = upstream.blobs.pop(DIGEST)
        answer = await worker.client.request("GET", path_of(DIGEST, OTHER))
        assert answer.status == 404, "to know a digest grants nothing"
        upstream.blobs[DIGEST] = had
        assert await worker.pull(DIGEST, OTHER) == BLOB
        assert upstream.asked == [Asked(DIGEST, 0)]
        assert await world.left() == Left(0, 0, 2)


async def test_a_fill_for_another_repository_is_followed(fills: OpenFills) -> None:
    upstream = DrippingUpstream(BLOB, allowed=MIB)
    async with fills(upstream, count=2) as world:
        await world.workers[0].fed(DIGEST)
        other = asyncio.create_task(world.workers[1].pull(DIGEST, OTHER))
        await asyncio.wait_for(upstream.was_asked.wait(), 60)
        upstream.allow(None)
        assert await other == BLOB
        assert await world.workers[0].pull(DIGEST, OTHER) == BLOB
        assert upstream.asked == [Asked(DIGEST, 0)]


async def test_an_upstream_that_tells_no_size_is_waited_for(fills: OpenFills) -> None:
    upstream = DrippingUpstream(BLOB)
    upstream.tells_size = False
    async with fills(upstream, count=2) as world:
        head = await world.workers[0].client.request("HEAD", path_of(DIGEST))
        assert head.status == 503, "a length that is not known cannot be told"
        bodies = await asyncio.gather(*(worker.pull(DIGEST) for worker in world.workers))
        assert bodies == [BLOB, BLOB]
        assert upstream.asked == [Asked(DIGEST, 0)]


@pytest.mark.parametrize("worker", [0, 1])
@pytest.mark.parametrize("seals", [False, True])
async def test_a_slow_reader_holds_up_nobody(fills: OpenFills, worker: int, seals: bool) -> None:
    upstream = DrippingUpstream(BLOB, allowed=2 * MIB)
    async with fills(upstream, count=2, seals=seals) as world:
        await world.workers[0].fed(DIGEST)
        stream = (await world.workers[worker].fed(DIGEST)).blob.stream()
        got = await take(stream, 1)
        upstream.allow(10 * MIB)
        quick = (await world.workers[worker].fed(DIGEST)).blob.stream()
        assert BLOB.startswith(await take(quick, 9 * MIB))
        got += await take(stream, 9 * MIB - len(got))
        upstream.allow(None)
        await world.settled()
        got += await joined(stream)
        assert got == BLOB


@on_both_databases
@sealed_on_sqlite
async def test_a_fill_whose_worker_dies_is_taken_over(fills: OpenFills, seals: bool) -> None:
    upstream = DrippingUpstream(BLOB, allowed=10 * MIB)
    async with fills(upstream, count=2, seals=seals) as world:
        dying, other = world.workers
        await take((await dying.fed(DIGEST)).blob.stream(), 10 * MIB)
        follower = await other.fed(DIGEST)
        stream = follower.blob.stream()
        await take(stream, MIB)
        await world.kill(dying)
        upstream.allow(None)
        assert await other.pull(DIGEST) == BLOB
        assert upstream.asked[1].start >= 8 * MIB
        assert await world.left() == ONE
        assert world.files() == (0, 1)

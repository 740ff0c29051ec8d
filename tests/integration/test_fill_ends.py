"""How fills end for readers that are behind, follow another worker or have another repository."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from cloudcore.db.statement import Statement
from registry.blobstore.base import OpenObject
from registry.metadata.blobs.upload_quota import find_room
from registry.metadata.pull_through.fills import find_fill
from registry.metadata.pull_through.tables import blob_fills
from registry.oci.digest import digest_of
from registry.oci.reference import Name
from registry.services.blobs import reading
from registry.services.pull_through.feed import Feed, FeedReader, Rewound
from registry.services.pull_through.fill_or_follow import follow
from tests.dripping_upstream import DrippingUpstream
from tests.dying import Kind
from tests.integration.fills_world import (
    HANDLE,
    OTHER,
    REPOSITORY,
    Left,
    MortalDatabase,
    OpenFills,
    Worker,
    joined,
)

MIB: Final = 1024 * 1024
BLOB: Final = bytes(range(256)) * (6 * MIB // 256) + b"the end"
DIGEST: Final = digest_of(BLOB)

pytestmark = pytest.mark.anyio
_END: Final = Statement(blob_fills.delete())


class Watching(MortalDatabase):
    """A database that tells when a fill was looked for, and when it is gone."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type] # as its base has it
        self.is_gone = asyncio.Event()
        self.looks = asyncio.Semaphore(0)

    async def after(self, _kind: Kind, call: object, result: object) -> None:
        if call is find_fill:
            self.looks.release()
            if result is None:
                self.is_gone.set()


def reader_of(worker: Worker, feed: Feed) -> FeedReader:
    """Return a reader of a feed whose blob is stored."""

    async def stored() -> OpenObject:
        name = Name(HANDLE, REPOSITORY)
        found = await reading.stat_blob(worker.ctx, name, DIGEST)
        return await reading.open_blob(worker.ctx, name, found)

    return FeedReader(feed, worker.ctx.reader, stored)


async def test_who_waits_for_bytes_that_others_have_stored_gets_them(fills: OpenFills) -> None:
    async with fills(DrippingUpstream(BLOB)) as world:
        worker = world.workers[0]
        await worker.pull(DIGEST)
        feed = Feed()
        feed.open(len(BLOB), None)
        feed.append(BLOB[:1])
        begun, waiting = reader_of(worker, feed).stream(), reader_of(worker, feed).stream(MIB)
        assert await anext(begun) == BLOB[:1]
        whole = asyncio.create_task(joined(waiting))
        feed.open(len(BLOB), None)
        feed.finish()
        async with asyncio.timeout(60):
            assert await whole == BLOB[MIB:]
            assert await joined(reader_of(worker, feed).stream()) == BLOB
            with pytest.raises(Rewound):
                await anext(begun)


async def test_a_slow_reader_of_another_repository_gets_all(fills: OpenFills) -> None:
    upstream = DrippingUpstream(BLOB, allowed=MIB)
    async with fills(upstream) as world:
        worker = world.workers[0]
        await worker.fed(DIGEST)
        other = (await worker.fed(DIGEST, OTHER)).blob.stream()
        begun = await anext(other)
        upstream.allow(None)
        await worker.ctx.fills.settled()
        assert begun + await joined(other) == BLOB
        assert await world.left() == Left(0, 0, 2)


async def test_a_follower_takes_no_dropped_bytes_for_right(fills: OpenFills) -> None:
    upstream = DrippingUpstream(BLOB, allowed=2 * MIB)
    async with fills(upstream, count=2, around=Watching) as world:
        filling, following = world.workers
        await anext((await filling.fed(DIGEST)).blob.stream())
        database = following.ctx.database
        assert isinstance(database, Watching)
        of = (await world.fill()).upload
        source, feed = await following.source(of, DIGEST), Feed()
        followed = asyncio.create_task(follow(following.ctx, source, feed))
        await feed.opened()
        # The fill ends as one of wrong bytes does: first its row goes, then the staged file.
        await filling.ctx.database.write(lambda tx: tx.execute(_END))
        await asyncio.wait_for(database.is_gone.wait(), 60)
        (world.folder / "uploads" / of.stage_id).unlink()
        assert not await followed


async def test_what_is_fetched_takes_no_room_of_uploads(fills: OpenFills) -> None:
    upstream = DrippingUpstream(BLOB, allowed=2 * MIB)
    async with fills(upstream) as world:
        worker = world.workers[0]
        await anext((await worker.fed(DIGEST)).blob.stream())
        database = worker.ctx.database
        of = (await world.fill()).upload
        where = of.repository_id, of.account_id, 0, 1, 1
        assert (await database.read(find_room, *where)).full is None
        await database.write(lambda tx: tx.execute(_END))
        assert (await database.read(find_room, *where)).full == "repository"


async def test_a_follower_waits_while_another_copies_what_it_has_taken_over(
    fills: OpenFills,
) -> None:
    upstream = DrippingUpstream(BLOB, allowed=2 * MIB)
    async with fills(upstream, count=3, around=Watching) as world:
        dying, taking, following = world.workers
        await anext((await dying.fed(DIGEST)).blob.stream())
        database = following.ctx.database
        assert isinstance(database, Watching)
        of, ctx = (await world.fill()).upload, taking.ctx
        await world.kill(dying)
        assert await ctx.database.write(ctx.leases.take_abandoned, of.id, ctx.clock())
        source, feed = await following.source(of, DIGEST), Feed()
        followed = asyncio.create_task(follow(following.ctx, source, feed))
        for _ in range(4):
            await asyncio.wait_for(database.looks.acquire(), 60)
        assert feed.size is None, "the copy may have fewer bytes"
        followed.cancel()
        await asyncio.wait((followed,))

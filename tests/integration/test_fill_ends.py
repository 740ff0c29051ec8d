"""How fills end for readers that are behind, follow another worker or have another repository."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Concatenate, Final

import pytest

from cloudcore.db.base import Connection, P, T
from cloudcore.db.statement import Statement
from registry.blobstore.base import OpenObject
from registry.errors import BlobUnknown
from registry.metadata.blobs.upload_quota import find_room
from registry.metadata.pull_through import fills
from registry.metadata.pull_through.rules import find_rule_for
from registry.metadata.pull_through.tables import blob_fills
from registry.oci.digest import digest_of
from registry.oci.reference import Name
from registry.services.blobs import reading
from registry.services.pull_through.feed import Feed, FeedReader, Rewound
from registry.services.pull_through.fill_or_follow import follow
from registry.services.pull_through.fills import Source
from registry.services.pull_through.missing_blobs import FedBlob, get_missing_blob
from registry.services.pull_through.remote import no_credential, remote_of
from tests.dripping_upstream import DrippingUpstream
from tests.integration.fills_world import (
    HANDLE,
    OTHER,
    REPOSITORY,
    Left,
    MortalDatabase,
    Worker,
    fills_world,
)

MIB: Final = 1024 * 1024
BLOB: Final = bytes(range(256)) * (6 * MIB // 256) + b"the end"
DIGEST: Final = digest_of(BLOB)

pytestmark = pytest.mark.anyio
_FILL: Final = Statement(
    blob_fills.select().with_only_columns(blob_fills.c.account_id, blob_fills.c.digest)
)
_END: Final = Statement(blob_fills.delete())


class Watching(MortalDatabase):
    """A database that tells when a fill was looked for, and when it is gone."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type] # as its base has it
        self.is_gone = asyncio.Event()
        self.looks = asyncio.Semaphore(0)

    async def read(
        self, query: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        found = await super().read(query, *args, **kwargs)
        if query is fills.find_fill:
            self.looks.release()
            if found is None:
                self.is_gone.set()
        return found


async def fed(worker: Worker, repository: str = REPOSITORY) -> FedBlob:
    """Return a blob that is being fetched."""
    name = Name(HANDLE, repository)
    found = await get_missing_blob(worker.ctx, name, DIGEST, BlobUnknown("it is not here"))
    assert isinstance(found, FedBlob)
    return found


def reader_of(worker: Worker, feed: Feed) -> FeedReader:
    """Return a reader of a feed whose blob is stored."""

    async def stored() -> OpenObject:
        name = Name(HANDLE, REPOSITORY)
        found = await reading.stat_blob(worker.ctx, name, DIGEST)
        return await reading.open_blob(worker.ctx, name, found)

    return FeedReader(feed, worker.ctx.reader, stored)


async def test_who_waits_for_bytes_that_others_have_stored_gets_them(
    metadata_url: str, tmp_path: Path
) -> None:
    async with fills_world(metadata_url, tmp_path, DrippingUpstream(BLOB)) as world:
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


async def joined(parts: AsyncIterator[bytes]) -> bytes:
    """Return all bytes of a stream."""
    return b"".join([part async for part in parts])


async def test_a_slow_reader_of_another_repository_gets_all(
    metadata_url: str, tmp_path: Path
) -> None:
    upstream = DrippingUpstream(BLOB)
    upstream.allow(MIB)
    async with fills_world(metadata_url, tmp_path, upstream) as world:
        worker = world.workers[0]
        await fed(worker)
        other = (await fed(worker, OTHER)).blob.stream()
        begun = await anext(other)
        upstream.allow(None)
        await worker.ctx.fills.settled()
        assert begun + await joined(other) == BLOB
        assert await world.left() == Left(0, 0, 2)


async def test_a_follower_takes_no_dropped_bytes_for_right(
    metadata_url: str, tmp_path: Path
) -> None:
    upstream = DrippingUpstream(BLOB)
    upstream.allow(2 * MIB)
    async with fills_world(metadata_url, tmp_path, upstream, count=2, around=Watching) as world:
        filling, following = world.workers
        await anext((await fed(filling)).blob.stream())
        database = following.ctx.database
        assert isinstance(database, Watching)
        account, key = await database.read(lambda tx: tx.rows(_FILL)[0])
        found = await database.read(fills.find_fill, account, key)
        assert found is not None
        name, of = Name(HANDLE, REPOSITORY), found.upload
        rule = await database.read(find_rule_for, HANDLE, REPOSITORY)
        assert rule is not None
        remote = remote_of(rule, name, no_credential)
        source = Source(name, of.repository_id, of.account_id, DIGEST, remote)
        feed = Feed()
        followed = asyncio.create_task(follow(following.ctx, source, feed))
        await feed.opened()
        # The fill ends as one of wrong bytes does: first its row goes, then the staged file.
        await filling.ctx.database.write(lambda tx: tx.execute(_END))
        await asyncio.wait_for(database.is_gone.wait(), 60)
        (tmp_path / "uploads" / of.stage_id).unlink()
        assert not await followed


async def test_what_is_fetched_takes_no_room_of_uploads(metadata_url: str, tmp_path: Path) -> None:
    upstream = DrippingUpstream(BLOB)
    upstream.allow(2 * MIB)
    async with fills_world(metadata_url, tmp_path, upstream) as world:
        worker = world.workers[0]
        await anext((await fed(worker)).blob.stream())
        database = worker.ctx.database
        account, key = await database.read(lambda tx: tx.rows(_FILL)[0])
        found = await database.read(fills.find_fill, account, key)
        assert found is not None
        repository_id = found.upload.repository_id
        assert (await database.read(find_room, repository_id, account, 0, 1, 1)).full is None
        await database.write(lambda tx: tx.execute(_END))
        assert (
            await database.read(find_room, repository_id, account, 0, 1, 1)
        ).full == "repository"


async def test_a_follower_waits_while_another_copies_what_it_has_taken_over(
    metadata_url: str, tmp_path: Path
) -> None:
    upstream = DrippingUpstream(BLOB)
    upstream.allow(2 * MIB)
    async with fills_world(metadata_url, tmp_path, upstream, count=3, around=Watching) as world:
        dying, taking, following = world.workers
        await anext((await fed(dying)).blob.stream())
        database = following.ctx.database
        assert isinstance(database, Watching)
        account, key = await database.read(lambda tx: tx.rows(_FILL)[0])
        found = await database.read(fills.find_fill, account, key)
        rule = await database.read(find_rule_for, HANDLE, REPOSITORY)
        assert found is not None
        assert rule is not None
        await world.kill(dying)
        of, ctx = found.upload, taking.ctx
        assert await ctx.database.write(ctx.leases.take_abandoned, of.id, ctx.clock())
        name = Name(HANDLE, REPOSITORY)
        remote = remote_of(rule, name, no_credential)
        source = Source(name, of.repository_id, of.account_id, DIGEST, remote)
        feed = Feed()
        followed = asyncio.create_task(follow(following.ctx, source, feed))
        for _ in range(4):
            await asyncio.wait_for(database.looks.acquire(), 60)
        assert feed.size is None, "the copy may have fewer bytes"
        followed.cancel()
        await asyncio.wait((followed,))

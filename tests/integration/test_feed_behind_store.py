"""Readers of a fill of another worker that has ended before all its bytes had come to them."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from cloudcore.serving.asgi import Message, Scope
from registry.blobstore.base import DataKey, ObjectUnknown, OpenObject
from registry.blobstore.disk.store import FilesystemStore
from registry.distribution.response import BlobBody, Response, send_response
from registry.errors import BlobUnknown
from registry.oci.digest import digest_of
from registry.oci.reference import Name
from registry.services.blobs.reading import open_blob, stat_blob
from registry.services.pull_through.feed import Feed, FeedReader, Rewound, StagedFill
from registry.services.pull_through.fill_or_follow import run_fill
from tests.dripping_upstream import DrippingUpstream
from tests.integration.fills_world import HANDLE, REPOSITORY, OpenFills, Worker, joined

MIB: Final = 1024 * 1024
BLOB: Final = random.Random(5).randbytes(3 * MIB + 7)
DIGEST: Final = digest_of(BLOB)
NAME: Final = Name(HANDLE, REPOSITORY)

pytestmark = pytest.mark.anyio


async def reader_of(worker: Worker, feed: Feed) -> FeedReader:
    """Return a reader of a feed whose blob is stored."""
    found = await stat_blob(worker.ctx, NAME, DIGEST)
    return FeedReader(feed, worker.ctx.reader, partial(open_blob, worker.ctx, NAME, found))


async def bring_the_rest(worker: Worker, feed: Feed) -> None:
    """Bring a blob, which is stored, to a feed that has followed another worker so far."""
    link = (await stat_blob(worker.ctx, NAME, DIGEST)).link
    await run_fill(worker.ctx, await worker.source(link, DIGEST), feed)


@asynccontextmanager
async def stored(
    fills: OpenFills, *, seals: bool = False
) -> AsyncIterator[tuple[Worker, StagedFill]]:
    """Store the blob; yield who has it, and its bytes as those of a fill."""
    async with fills(DrippingUpstream(BLOB), seals=seals) as world:
        worker = world.workers[0]
        assert await worker.pull(DIGEST) == BLOB
        found = await stat_blob(worker.ctx, NAME, DIGEST)
        yield worker, StagedFill(found.link.stored_id, found.data_key)


def feed_of(stage: StagedFill, data: bytes = BLOB[:MIB]) -> Feed:
    """Return a feed to which some bytes have come."""
    feed = Feed()
    feed.open(len(BLOB), stage)
    feed.append(data)
    return feed


@pytest.mark.parametrize(
    ("seals", "kind"), [(False, "http.response.zerocopysend"), (True, "entrepot.send_parts")]
)
async def test_the_rest_is_read_from_the_store_and_sent_as_that_of_any_stored_blob(
    fills: OpenFills, seals: bool, kind: str
) -> None:
    async with stored(fills, seals=seals) as (worker, stage):
        feed = feed_of(stage)
        stream = (await reader_of(worker, feed)).stream()
        begun = await anext(stream)
        await bring_the_rest(worker, feed)
        assert begun + await joined(stream) == BLOB
        late = (await reader_of(worker, feed)).stream(MIB + 5)
        assert await joined(late) == BLOB[MIB + 5 :]

        sent_feed = feed_of(stage)
        kinds: list[str] = []
        body = b""

        async def send(message: Message) -> None:
            nonlocal body
            kinds.append(message["type"])
            body += message.get("body", b"")
            if message["type"] == "http.response.body" and not sent_feed.has_ended:
                await bring_the_rest(worker, sent_feed)
            elif message["type"] == "entrepot.send_parts":
                body += b"".join(bytes(part) for part in message["parts"](0))
            elif message["type"] == "http.response.zerocopysend":
                body += os.pread(message["file"], message["count"], message["offset"])

        names = "http.response.zerocopysend", "entrepot.send_parts"
        scope: Scope = {"method": "GET", "extensions": {name: {} for name in names}}
        reader = await reader_of(worker, sent_feed)
        await send_response(scope, send, Response(200, [], BlobBody(reader, 0, len(BLOB))), b"id")
        assert kinds == ["http.response.start", "http.response.body", kind]
        assert body == BLOB


@pytest.mark.parametrize("came", [MIB, len(BLOB)])
async def test_bytes_of_a_fill_that_was_given_up_are_taken_back(
    fills: OpenFills, came: int
) -> None:
    async with stored(fills) as (worker, _):
        feed = feed_of(StagedFill(worker.ctx.new_id(), None), bytes(came))
        stream = (await reader_of(worker, feed)).stream()
        assert await anext(stream) == bytes(min(came, len(BLOB) - 1))
        late = (await reader_of(worker, feed)).stream()
        await bring_the_rest(worker, feed)
        with pytest.raises(Rewound):
            await anext(stream)
        assert await joined(late) == BLOB


class Telling(FilesystemStore):
    """A store that tells when staged bytes were not there."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.missed = asyncio.Event()

    async def open_staged(self, upload_id: str, data_key: DataKey | None = None) -> OpenObject:
        try:
            return await super().open_staged(upload_id, data_key)
        except ObjectUnknown:
            self.missed.set()
            raise


async def test_a_reader_whose_stage_is_gone_goes_on_with_the_next(
    fills: OpenFills, tmp_path: Path
) -> None:
    async with stored(fills) as (worker, stage):
        found = await stat_blob(worker.ctx, NAME, DIGEST)
        feed = Feed()
        feed.open(len(BLOB), StagedFill(worker.ctx.new_id(), None), 2 * MIB)
        with closing(Telling(tmp_path)) as store:
            reader = FeedReader(feed, store, partial(open_blob, worker.ctx, NAME, found))
            begun = asyncio.ensure_future(anext(reader.stream(5)))
            await store.missed.wait()
            feed.open(len(BLOB), stage, 2 * MIB)
            assert BLOB[5:].startswith(await begun)
            await reader.aclose()


@pytest.mark.parametrize("seals", [False, True])
async def test_a_blob_that_is_not_recorded_yet_is_read_to_its_end(
    fills: OpenFills, seals: bool
) -> None:
    async def not_recorded() -> OpenObject:
        raise BlobUnknown("the worker that fetches has not recorded it yet")

    async with stored(fills, seals=seals) as (worker, stage):
        feed = Feed()
        feed.open(len(BLOB), stage, MIB)
        feed.append(BLOB[MIB:])
        feed.finish()
        reader = FeedReader(feed, worker.ctx.reader, not_recorded)
        assert await joined(reader.stream()) == BLOB
        await reader.aclose()

"""Readers that have fallen behind a fill: the staged file is read once for all of them."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path
from typing import Final

import pytest

from cloudcore.serving.asgi import FileRegion
from registry.blobstore.base import DataKey, OpenObject, StagedDropped
from registry.blobstore.disk.store import FilesystemStore
from registry.blobstore.sealed.frame_format import FRAME_BYTES
from registry.services.pull_through.feed import KEPT_PARTS, StagedFill, StagedParts
from tests.small_frames import KEY

SIZE: Final = 7 * FRAME_BYTES
DATA: Final = random.Random(7).randbytes(SIZE)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


class CountingStore(FilesystemStore):
    """A store that notes which staged ranges are read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.opened = 0
        self.read: list[tuple[int, int]] = []

    async def open_staged(self, upload_id: str, data_key: DataKey | None = None) -> OpenObject:
        found = await super().open_staged(upload_id, data_key)
        self.opened += 1
        return CountedObject(found, self.read)


class CountedObject(OpenObject):
    """An object that notes which ranges are read."""

    def __init__(self, found: OpenObject, read: list[tuple[int, int]]) -> None:
        self._found = found
        self._read = read

    @property
    def length(self) -> int | None:
        return self._found.length

    def file_region(self, start: int = 0, stop: int | None = None) -> FileRegion | None:
        return self._found.file_region(start, stop)

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        return self._found.chunks(start, stop)

    def stream(self, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        assert stop is not None
        self._read.append((start, stop))
        return self._found.stream(start, stop)

    async def aclose(self) -> None:
        await self._found.aclose()


@asynccontextmanager
async def staged(
    root: Path, key: DataKey | None
) -> AsyncIterator[tuple[CountingStore, StagedFill]]:
    """Give a store in which `DATA` is staged."""
    with closing(CountingStore(root)) as store:
        stage = StagedFill(str(uuid.uuid4()), key)
        async with aclosing(await store.stage(stage.stage_id, key)) as held:
            held.write(memoryview(DATA))
            yield store, stage


async def read(parts: StagedParts, offset: int = 0, stop: int = SIZE) -> bytes:
    """Read a range as a reader does that is behind."""
    parts.join()
    found = b""
    try:
        while offset + len(found) < stop:
            found += await parts.part_at(offset + len(found), SIZE)
            await asyncio.sleep(0)
    finally:
        await parts.leave()
    return found[: stop - offset]


@pytest.mark.parametrize("key", [None, KEY])
async def test_readers_that_are_near_each_other_cost_one_read(
    tmp_path: Path, key: DataKey | None
) -> None:
    async with staged(tmp_path, key) as (store, stage):
        parts = StagedParts(store, stage)
        offsets = [number * 999 for number in range(20)]
        bodies = await asyncio.gather(*(read(parts, offset) for offset in offsets))
        assert bodies == [DATA[offset:] for offset in offsets]
        assert store.opened == 1
        assert store.read == [(at, at + FRAME_BYTES) for at in range(0, SIZE, FRAME_BYTES)]


async def test_what_is_kept_is_bounded_and_goes_with_the_last_reader(tmp_path: Path) -> None:
    async with staged(tmp_path, KEY) as (store, stage):
        parts = StagedParts(store, stage)
        parts.join()
        assert await read(parts) == DATA
        assert parts.kept == KEPT_PARTS
        assert await read(parts, 5, 77) == DATA[5:77], "it was forgotten, and is read again"
        assert parts.kept == KEPT_PARTS
        await parts.leave()
        assert parts.kept == 0
        assert store.opened == 1
        assert await read(parts, 1, 3) == DATA[1:3]
        assert store.opened == 2


async def test_a_part_that_was_cut_short_is_read_again_once_there_is_more(tmp_path: Path) -> None:
    async with staged(tmp_path, None) as (store, stage):
        parts = StagedParts(store, stage)
        parts.join()
        assert await parts.part_at(3, 10) == DATA[3:10]
        assert (await parts.part_at(10, SIZE)).startswith(DATA[10:1000])
        await parts.leave()


async def test_a_reader_that_leaves_while_it_reads_stops_no_other(tmp_path: Path) -> None:
    async with staged(tmp_path, KEY) as (store, stage):
        parts = StagedParts(store, stage)
        leaving = asyncio.create_task(read(parts))
        other = asyncio.create_task(read(parts))
        await asyncio.sleep(0)
        leaving.cancel()
        assert await other == DATA


async def test_bytes_that_are_gone_are_told(tmp_path: Path) -> None:
    with closing(CountingStore(tmp_path)) as store:
        stage = StagedFill(str(uuid.uuid4()), KEY)
        async with aclosing(await store.stage(stage.stage_id, KEY)) as held:
            held.write(memoryview(DATA))
            parts = StagedParts(store, stage)
            parts.join()
            await parts.part_at(0, SIZE)
            await held.discard()
            with pytest.raises(StagedDropped):
                await parts.part_at(SIZE - 1, SIZE)
            await parts.leave()

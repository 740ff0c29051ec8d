"""Staged bytes that are read while they grow, on each store, and across two processes' stores."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, closing
from pathlib import Path
from typing import cast

import pytest

from registry.blobstore.base import ObjectUnknown, OpenObject, StagedDropped
from registry.blobstore.disk.store import FilesystemStore
from registry.blobstore.s3.bucket import Bucket
from registry.blobstore.s3.files import S3Files
from registry.blobstore.s3.store import S3Store
from registry.blobstore.store import BlobStore
from registry.oci.digest import digest_of
from registry.settings.store import StoreSettings
from tests.memory_store import MemoryStore
from tests.s3_servers import credentials, settings_for
from tests.sealing_store import SealingStore
from tests.small_frames import KEY, SMALL_BYTES, compressible, small_frames

UPLOAD = str(uuid.UUID(int=7))
NEVER = 3600.0
"""Seconds between two looks: a reader that misses a signal hangs."""


@pytest.fixture(params=["filesystem", "memory", "memory-sealed", "seaweedfs", "seaweedfs-sealed"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BlobStore]:
    if request.param.startswith("seaweedfs"):
        with credentials(), closing(s3_store(NEVER)) as found:
            sealing = request.param.endswith("sealed")
            yield cast("BlobStore", SealingStore(found, KEY)) if sealing else found
    elif request.param == "memory":
        yield MemoryStore()
    elif request.param == "memory-sealed":
        yield cast("BlobStore", SealingStore(MemoryStore(), KEY))
    else:
        with closing(FilesystemStore(tmp_path / "blobs", look_seconds=NEVER)) as filesystem:
            yield filesystem


def s3_store(look_seconds: float, settings: StoreSettings | None = None) -> S3Store:
    """Return a store on SeaweedFS: a new one, or as another process has it."""
    return S3Store(S3Files(Bucket(settings or settings_for("seaweedfs"))), look_seconds)


class Following:
    """A task that reads to the end, and what it has read."""

    def __init__(self, opened: OpenObject, start: int = 0, stop: int | None = None) -> None:
        self.read = bytearray()
        self._more = asyncio.Event()
        self._task = asyncio.create_task(self._follow(opened.stream(start, stop)))

    async def _follow(self, stream: AsyncIterator[bytes]) -> None:
        async for part in stream:
            self.read += part
            self._more.set()

    async def has(self, count: int) -> None:
        """Wait until so many bytes were read."""
        while len(self.read) < count:
            self._more.clear()
            await self._more.wait()

    @property
    def is_waiting(self) -> bool:
        """Return True if the end has not come."""
        return not self._task.done()

    async def end(self) -> bytes:
        """Return all that was read, at the end."""
        await self._task
        return bytes(self.read)


async def test_a_reader_gets_bytes_as_they_come_and_ends_with_the_commit(store: BlobStore) -> None:
    async with (
        aclosing(await store.stage(UPLOAD, None)) as staged,
        aclosing(await store.open_staged(UPLOAD)) as opened,
    ):
        assert (opened.length, opened.file_region()) == (None, None)
        with pytest.raises(ValueError, match="stream"):
            opened.chunks()
        following = Following(opened)
        await asyncio.to_thread(staged.write, memoryview(b"first "))
        await following.has(6)
        assert following.is_waiting
        await asyncio.to_thread(staged.write, memoryview(b"second"))
        await following.has(12)
        assert following.is_waiting
        await asyncio.to_thread(staged.commit, digest_of(b"first second"))
        assert await following.end() == b"first second"
        assert opened.length == 12
        assert await Following(opened, 6, 9).end() == b"sec"
        for start, stop in ((13, None), (0, 13), (-1, None), (3, 2)):
            with pytest.raises(ValueError, match="range"):
                await Following(opened, start, stop).end()
    async with aclosing(await store.open_staged(UPLOAD)) as opened:
        assert opened.length == 12
        assert await Following(opened).end() == b"first second"


async def test_a_range_ends_when_its_last_byte_is_there(store: BlobStore) -> None:
    async with (
        aclosing(await store.stage(UPLOAD, None)) as staged,
        aclosing(await store.open_staged(UPLOAD)) as opened,
    ):
        following = Following(opened, 3, 9)
        await asyncio.to_thread(staged.write, memoryview(b"012345"))
        await following.has(3)
        assert following.is_waiting
        await asyncio.to_thread(staged.write, memoryview(b"6789"))
        assert await following.end() == b"345678"


@pytest.mark.parametrize("how", ["its writer", "another", "a wrong digest", "set aside", "cut"])
async def test_a_reader_hears_that_the_bytes_were_dropped(store: BlobStore, how: str) -> None:
    staged = await store.stage(UPLOAD, None)
    staged.write(memoryview(b"some bytes"))
    async with aclosing(staged), aclosing(await store.open_staged(UPLOAD)) as opened:
        following = Following(opened)
        await following.has(10)
        if how == "its writer":
            await staged.discard()
        elif how == "another":
            await staged.aclose()
            await store.discard(UPLOAD)
        elif how == "a wrong digest":
            with pytest.raises(Exception, match="do not hash"):
                await asyncio.to_thread(staged.commit, digest_of(b"other bytes"))
            await staged.discard()
        elif how == "set aside":
            await store.set_aside(UPLOAD, 1)
        else:
            await staged.rewind(0, data_key=None)
        with pytest.raises(StagedDropped):
            await following.end()


async def test_a_rewind_to_what_was_read_ends_no_reader(store: BlobStore) -> None:
    async with aclosing(await store.stage(UPLOAD, None)) as staged:
        staged.write(memoryview(b"acknowledged"))
        digests = staged.flush()
    async with (
        aclosing(await store.open_staged(UPLOAD)) as opened,
        aclosing(await store.resume(UPLOAD)) as staged,
    ):
        following = Following(opened)
        await following.has(12)
        await staged.rewind(12, digests, data_key=None)
        await asyncio.to_thread(staged.write, memoryview(b", and more"))
        await asyncio.to_thread(staged.commit, digest_of(b"acknowledged, and more"))
        assert await following.end() == b"acknowledged, and more"


async def test_a_reader_that_leaves_is_forgotten(store: BlobStore) -> None:
    async with (
        aclosing(await store.stage(UPLOAD, None)) as staged,
        aclosing(await store.open_staged(UPLOAD)) as opened,
    ):
        staged.write(memoryview(b"a part"))
        async for part in opened.stream(0, 6):
            assert part == b"a part"
        following = Following(opened)
        await following.has(6)
        following._task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following.end()
        assert isinstance(store, FilesystemStore | MemoryStore | SealingStore | S3Store)
        assert not store.signals.followers


async def test_another_process_sees_the_bytes_grow(tmp_path: Path) -> None:
    """Nothing signals there: it looks."""
    with (
        closing(FilesystemStore(tmp_path / "blobs", look_seconds=NEVER)) as ours,
        closing(FilesystemStore(tmp_path / "blobs", look_seconds=0)) as other,
    ):
        async with (
            aclosing(await ours.stage(UPLOAD, None)) as staged,
            aclosing(await other.open_staged(UPLOAD)) as opened,
        ):
            following = Following(opened)
            for count in (1, 2):
                await asyncio.to_thread(staged.write, memoryview(b"part "))
                await following.has(5 * count)
            await asyncio.to_thread(staged.commit, digest_of(b"part part "))
            assert await following.end() == b"part part "


async def test_another_process_sees_what_is_in_a_bucket_when_it_is_committed() -> None:
    """S3 gives no bytes of parts before."""
    settings = settings_for("seaweedfs")
    with (
        credentials(),
        closing(s3_store(NEVER, settings)) as ours,
        closing(s3_store(0.02, settings)) as other,
    ):
        with pytest.raises(ObjectUnknown):
            await other.open_staged(UPLOAD)
        async with (
            aclosing(await ours.stage(UPLOAD, None)) as staged,
            aclosing(await other.open_staged(UPLOAD)) as opened,
        ):
            following = Following(opened, 2)
            await asyncio.to_thread(staged.write, memoryview(b"bytes"))
            await asyncio.to_thread(staged.flush)
            await asyncio.to_thread(staged.commit, digest_of(b"bytes"))
            assert await following.end() == b"tes"


@pytest.mark.parametrize("look_seconds", [NEVER, 0])
@pytest.mark.parametrize("compresses", [False, True])
async def test_sealed_bytes_are_seen_by_frames(
    tmp_path: Path, look_seconds: float, *, compresses: bool
) -> None:
    """Whole ones as they are stored; the rest when it is flushed first, or committed."""
    data = compressible(random.Random(5), 6 * SMALL_BYTES)
    first, second, third = SMALL_BYTES + 20, 3 * SMALL_BYTES + 90, 4 * SMALL_BYTES + 9
    with (
        small_frames(),
        closing(
            FilesystemStore(tmp_path / "blobs", look_seconds=NEVER, compresses=compresses)
        ) as ours,
        closing(FilesystemStore(tmp_path / "blobs", look_seconds=0)) as other,
    ):
        reader = ours if look_seconds else other
        async with AsyncExitStack() as readers:
            async with aclosing(await ours.stage(UPLOAD, KEY)) as staged:
                opened = await reader.open_staged(UPLOAD, KEY)
                await readers.enter_async_context(aclosing(opened))
                following = Following(opened)
                await asyncio.to_thread(staged.write, memoryview(data[:first]))
                await following.has(SMALL_BYTES)
                digests = await asyncio.to_thread(staged.flush)
            staged = await readers.enter_async_context(aclosing(await ours.resume(UPLOAD)))
            again = await reader.open_staged(UPLOAD, KEY)
            await readers.enter_async_context(aclosing(again))
            latecomer = Following(again)
            await latecomer.has(first)
            await staged.rewind(first, digests, data_key=KEY)
            for start, stop in ((first, second), (second, third)):
                await asyncio.to_thread(staged.write, memoryview(data[start:stop]))
                await following.has(stop // SMALL_BYTES * SMALL_BYTES)
                await latecomer.has(stop // SMALL_BYTES * SMALL_BYTES)
                await asyncio.to_thread(staged.flush)
            assert following.is_waiting
            await asyncio.to_thread(staged.commit, digest_of(data[:third]))
            assert await following.end() == data[:third]
            assert await latecomer.end() == data[:third]
            assert opened.length == third
            middle = Following(again, SMALL_BYTES - 5, third - 3)
            assert await middle.end() == data[SMALL_BYTES - 5 : third - 3]


@pytest.mark.parametrize("compresses", [False, True])
async def test_sealed_bytes_that_are_dropped_end_their_reader(
    tmp_path: Path, *, compresses: bool
) -> None:
    with (
        small_frames(),
        closing(
            FilesystemStore(tmp_path / "blobs", look_seconds=NEVER, compresses=compresses)
        ) as store,
    ):
        staged = await store.stage(UPLOAD, KEY)
        async with aclosing(staged), aclosing(await store.open_staged(UPLOAD, KEY)) as opened:
            following = Following(opened)
            await asyncio.to_thread(staged.write, memoryview(bytes(2 * SMALL_BYTES)))
            await following.has(2 * SMALL_BYTES)
            await staged.rewind(0, data_key=KEY)
            with pytest.raises(StagedDropped):
                await following.end()

"""Sealed bytes in a store: keys, frames of full size, ranges, checksums and copies."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, aclosing, closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from blake3 import blake3

from registry.blobstore.base import BlobStore, DataKey, ObjectDamaged, ObjectUnknown, Staged, Stored
from registry.blobstore.filesystem import FilesystemStore
from registry.blobstore.memory import MemoryStore
from registry.blobstore.sealed_format import FRAME_BYTES, sealed_size
from registry.oci.digest import digest_of
from tests.small_frames import KEY

DATA: Final = random.Random(12).randbytes(2 * FRAME_BYTES + 700)
OTHERS: Final = (
    replace(KEY, plaintext=bytes(32)),
    replace(KEY, context=b"another account"),
)


def new_id() -> str:
    return str(uuid.uuid4())


@pytest.fixture(params=["filesystem", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BlobStore]:
    with ExitStack() as stack:
        if request.param == "memory":
            yield MemoryStore()
        else:
            yield stack.enter_context(closing(FilesystemStore(tmp_path / "blobs")))


def write(staged: Staged, data: bytes, unit: int = 256 * 1024) -> None:
    for offset in range(0, len(data), unit):
        staged.write(memoryview(data)[offset : offset + unit])


async def put(store: BlobStore, data: bytes, key: DataKey | None = KEY) -> Stored:
    async with aclosing(await store.stage(new_id(), key)) as staged:
        write(staged, data)
        return staged.commit(digest_of(data))


async def read(
    store: BlobStore,
    object_id: str,
    start: int = 0,
    stop: int | None = None,
    size: int | None = None,
) -> bytes:
    async with aclosing(await store.open(object_id, size, KEY)) as stored:
        assert stored.file_region(start, stop) is None
        parts = [bytes(chunk) for chunk in stored.chunks(start, stop)]
        streamed = [part async for part in stored.stream(start, stop)]
        assert b"".join(parts) == b"".join(streamed)
        assert max(map(len, parts), default=0) <= FRAME_BYTES
        assert max(map(len, streamed), default=0) <= 256 * 1024
        return b"".join(parts)


@pytest.mark.parametrize("size", [FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, len(DATA)])
async def test_frames_of_full_size(store: BlobStore, size: int) -> None:
    data = DATA[:size]
    stored = await put(store, data)
    assert (stored.size, stored.stored_size) == (size, sealed_size(size))
    for known in (size, None):
        assert await read(store, stored.object_id, size=known) == data
    edge = size // FRAME_BYTES * FRAME_BYTES
    for start, stop in (
        (0, 1),
        (max(0, edge - 1), edge),
        (edge, None),
        (5, size - 3),
        (size, size),
    ):
        assert await read(store, stored.object_id, start, stop) == data[start:stop]


@pytest.mark.parametrize("other", OTHERS)
async def test_another_key_or_account_opens_nothing(store: BlobStore, other: DataKey) -> None:
    object_id = (await put(store, b"secret")).object_id
    for size in (6, None):
        with pytest.raises(ObjectDamaged):
            await store.open(object_id, size, other)
    with pytest.raises(ObjectUnknown):
        await store.stage_copy(new_id(), object_id, 6, data_key=KEY, source_key=other)
    async with aclosing(await store.resume(object_id)) as staged:
        with pytest.raises(ObjectUnknown):
            await staged.rewind(6, data_key=other)
    assert await read(store, object_id) == b"secret"
    upload_id = new_id()
    async with aclosing(await store.stage(upload_id, KEY)) as staged:
        write(staged, b"secret")
        digests = staged.flush()
    async with aclosing(await store.resume(upload_id)) as staged:
        with pytest.raises(ObjectUnknown):
            await staged.rewind(6, digests, data_key=other)
        await staged.rewind(6, digests, data_key=KEY)
        assert staged.commit(digest_of(b"secret")).size == 6


async def test_a_hold_stays_sealed_or_plain(store: BlobStore) -> None:
    for key, other in ((KEY, None), (None, KEY)):
        async with aclosing(await store.stage(new_id(), key)) as staged:
            write(staged, b"x")
            with pytest.raises(ValueError, match="data key"):
                await staged.rewind(0, data_key=other)


@pytest.mark.parametrize("source_key", [None, KEY])
@pytest.mark.parametrize("data_key", [None, KEY, OTHERS[0]])
@pytest.mark.parametrize("size", [1, FRAME_BYTES, FRAME_BYTES + 9])
async def test_a_copy_has_its_own_key(
    store: BlobStore, source_key: DataKey | None, data_key: DataKey | None, size: int
) -> None:
    source = (await put(store, DATA, source_key)).object_id
    copy = await store.stage_copy(new_id(), source, size, data_key=data_key, source_key=source_key)
    async with aclosing(copy):
        assert copy.offset == size
        write(copy, DATA[size:])
        object_id = copy.commit(digest_of(DATA)).object_id
    async with aclosing(await store.open(object_id, len(DATA), data_key)) as stored:
        assert b"".join(map(bytes, stored.chunks())) == DATA


@pytest.mark.parametrize("cuts", [(), (0,), (300,), (300, 900), (FRAME_BYTES,), (FRAME_BYTES + 5,)])
@pytest.mark.parametrize("is_same_process", [True, False])
async def test_the_checksum_is_of_the_stored_bytes(
    tmp_path: Path, cuts: tuple[int, ...], *, is_same_process: bool
) -> None:
    """However many requests, on one worker or two."""
    upload_id = new_id()
    root = tmp_path / "blobs"
    with closing(FilesystemStore(root)) as ours, closing(FilesystemStore(root)) as other:
        staged = await ours.stage(upload_id, KEY)
        start = 0
        for number, cut in enumerate((*cuts, len(DATA))):
            write(staged, DATA[start:cut])
            digests = staged.flush()
            await staged.aclose()
            store = ours if is_same_process or number % 2 else other
            staged = await store.resume(upload_id)
            await staged.rewind(cut, digests, data_key=KEY)
            start = cut
        stored = staged.commit(digest_of(DATA))
        await staged.aclose()
        content = (root / "objects" / upload_id[-2:] / upload_id).read_bytes()
        assert stored.checksum == blake3(content).hexdigest()
        assert stored.stored_size == len(content)
        assert await read(ours, upload_id, size=len(DATA)) == DATA


async def test_a_checksum_is_not_believed_after_another_rewrote_frames(tmp_path: Path) -> None:
    """Even if the bytes are the same: their nonces are not."""
    upload_id = new_id()
    root = tmp_path / "blobs"
    with closing(FilesystemStore(root)) as ours, closing(FilesystemStore(root)) as other:
        async with aclosing(await ours.stage(upload_id, KEY)) as staged:
            write(staged, DATA)
            staged.flush()
        async with aclosing(await other.resume(upload_id)) as staged:
            await staged.rewind(0, data_key=KEY)  # the first worker's answer was lost
            write(staged, DATA)
            digests = staged.flush()
        async with aclosing(await ours.resume(upload_id)) as staged:
            await staged.rewind(len(DATA), digests, data_key=KEY)
            stored = staged.commit(digest_of(DATA))
        content = (root / "objects" / upload_id[-2:] / upload_id).read_bytes()
        assert stored.checksum == blake3(content).hexdigest()


async def test_a_push_in_one_flushed_chunk_is_committed_without_a_write(tmp_path: Path) -> None:
    """As clients push: all bytes in one request, the digest in the next."""
    upload_id = new_id()
    root = tmp_path / "blobs"
    with closing(FilesystemStore(root)) as store:
        async with aclosing(await store.stage(upload_id, KEY)) as staged:
            write(staged, DATA)
            digests = staged.flush()
        flushed = (root / "uploads" / upload_id).read_bytes()
        async with aclosing(await store.resume(upload_id)) as staged:
            await staged.rewind(len(DATA), digests, data_key=KEY)
            staged.commit(digest_of(DATA))
        assert (root / "objects" / upload_id[-2:] / upload_id).read_bytes() == flushed


async def test_no_plaintext_is_stored(tmp_path: Path) -> None:
    root = tmp_path / "blobs"
    with closing(FilesystemStore(root)) as store:
        async with aclosing(await store.stage(new_id(), KEY)) as staged:
            write(staged, b"a secret " * 50_000)
            staged.flush()
            write(staged, b"a secret " * 90_000)
            for path in root.rglob("*"):
                assert path.is_dir() or b"secret" not in path.read_bytes()

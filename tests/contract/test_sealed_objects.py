"""Sealed bytes in a store: keys, frames of full size, ranges, checksums and copies."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, aclosing, closing, contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Final

import pytest
from blake3 import blake3

from registry.blobstore.base import DataKey, ObjectDamaged, ObjectUnknown, Stored
from registry.blobstore.disk.store import FilesystemStore
from registry.blobstore.sealed.frame_format import FRAME_BYTES, sealed_size
from registry.blobstore.store import BlobStore, Staged
from registry.errors import StoreUnavailable
from registry.oci.digest import digest_of
from tests.memory_store import MemoryStore
from tests.small_frames import KEY

DATA: Final = random.Random(12).randbytes(2 * FRAME_BYTES + 700)
TEXT: Final = random.Random(13).randbytes(FRAME_BYTES // 2).hex().encode()
MIXED: Final = TEXT + DATA[:FRAME_BYTES] + TEXT + DATA[:300] + TEXT[:900]
"""Whole frames that can be compressed and one that cannot, and a last one that can."""
OTHERS: Final = (replace(KEY, plaintext=bytes(32)), replace(KEY, context=b"another account"))
of_both = pytest.mark.parametrize("data", [DATA, MIXED], ids=["random", "mixed"])


def new_id() -> str:
    return str(uuid.uuid4())


@pytest.fixture(params=["filesystem", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BlobStore]:
    """Return a store that compresses what it can, which `DATA` is not."""
    with ExitStack() as stack:
        if request.param == "memory":
            yield MemoryStore(compresses=True)
        else:
            store = FilesystemStore(tmp_path / "blobs", compresses=True)
            yield stack.enter_context(closing(store))


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


async def check_read(store: BlobStore, object_id: str, data: bytes) -> None:
    """Check what is read of an object, whole and in ranges around the end of its last frame."""
    size = len(data)
    for known in (size, None):
        assert await read(store, object_id, size=known) == data
    edge = size // FRAME_BYTES * FRAME_BYTES
    for start, stop in (
        (0, 1),
        (max(0, edge - 1), edge),
        (edge, None),
        (5, size - 3),
        (size // 2, size // 2 + 10),
        (size, size),
    ):
        assert await read(store, object_id, start, stop) == data[start:stop]


async def test_frames_of_full_size(store: BlobStore) -> None:
    for size in (FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, len(DATA)):
        stored = await put(store, DATA[:size])
        assert (stored.size, stored.stored_size) == (size, sealed_size(size))
        await check_read(store, stored.object_id, DATA[:size])


async def test_compressed_frames(store: BlobStore) -> None:
    for size in (5000, FRAME_BYTES, FRAME_BYTES + 1, len(MIXED)):
        stored = await put(store, MIXED[:size])
        assert stored.size == size
        assert stored.stored_size < size * 0.9
        await check_read(store, stored.object_id, MIXED[:size])
        for wrong in (size - 1, size + 1, 0, 2**63):
            with pytest.raises(ObjectDamaged):
                await store.open(stored.object_id, wrong, KEY)


async def test_a_range_of_compressed_bytes_reads_its_frames_alone(tmp_path: Path) -> None:
    with closing(FilesystemStore(tmp_path / "blobs", compresses=True)) as store:
        stored = await put(store, MIXED)
        path = tmp_path / "blobs" / "objects" / stored.object_id[-2:] / stored.object_id
        with path.open("r+b") as file:
            file.seek(1000)
            file.write(b"damaged")
        start, stop = FRAME_BYTES, len(MIXED)
        assert await read(store, stored.object_id, start, stop, size=stop) == MIXED[start:stop]
        with pytest.raises(StoreUnavailable):
            await read(store, stored.object_id, 0, 1, size=stop)


async def test_bytes_that_are_compressed_already_are_stored_as_they_are(store: BlobStore) -> None:
    for begin in (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", DATA[:FRAME_BYTES]):
        stored = await put(store, begin + TEXT)
        assert stored.stored_size == sealed_size(len(begin + TEXT)), begin[:4]


@contextmanager
def two_processes(root: Path, *, compresses: bool) -> Iterator[tuple[BlobStore, BlobStore]]:
    """Open a folder as two processes do; the first compresses."""
    with (
        closing(FilesystemStore(root, compresses=True)) as ours,
        closing(FilesystemStore(root, compresses=compresses)) as other,
    ):
        yield ours, other


async def test_a_store_that_does_not_compress_reads_and_goes_on_with_what_another_has(
    tmp_path: Path,
) -> None:
    upload_id = new_id()
    with two_processes(tmp_path / "blobs", compresses=False) as (ours, other):
        for data in (MIXED, DATA):
            async with aclosing(await ours.stage(upload_id, KEY)) as staged:
                write(staged, data[: FRAME_BYTES + 7])
                digests = staged.flush()
            async with aclosing(await other.resume(upload_id)) as staged:
                await staged.rewind(FRAME_BYTES + 7, digests, data_key=KEY)
                write(staged, data[FRAME_BYTES + 7 :])
                stored = staged.commit(digest_of(data))
            assert (stored.stored_size < len(data)) == (data is MIXED)
            for store in (ours, other):
                assert await read(store, upload_id) == data
            await ours.delete([upload_id])
        assert (await put(other, MIXED)).stored_size == sealed_size(len(MIXED))


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


@of_both
async def test_a_copy_has_its_own_key(store: BlobStore, data: bytes) -> None:
    for source_key in (None, KEY):
        source = (await put(store, data, source_key)).object_id
        for key, size in product((None, KEY, OTHERS[0]), (1, FRAME_BYTES, FRAME_BYTES + 9)):
            copy = await store.stage_copy(
                new_id(), source, size, data_key=key, source_key=source_key
            )
            async with aclosing(copy):
                assert copy.offset == size
                write(copy, data[size:])
                object_id = copy.commit(digest_of(data)).object_id
            async with aclosing(await store.open(object_id, len(data), key)) as stored:
                assert b"".join(map(bytes, stored.chunks())) == data


@of_both
@pytest.mark.parametrize("is_same_process", [True, False])
async def test_the_checksum_is_of_the_stored_bytes(
    tmp_path: Path, data: bytes, *, is_same_process: bool
) -> None:
    """However many requests, on one worker or two."""
    root = tmp_path / "blobs"
    with two_processes(root, compresses=True) as (ours, other):
        for cuts in ((), (0,), (300,), (300, 900), (FRAME_BYTES,), (FRAME_BYTES + 5,)):
            upload_id, start = new_id(), 0
            staged = await ours.stage(upload_id, KEY)
            for number, cut in enumerate((*cuts, len(data))):
                write(staged, data[start:cut])
                digests = staged.flush()
                await staged.aclose()
                store = ours if is_same_process or number % 2 else other
                staged = await store.resume(upload_id)
                await staged.rewind(cut, digests, data_key=KEY)
                start = cut
            stored = staged.commit(digest_of(data))
            await staged.aclose()
            check_stored(root, upload_id, stored)
            assert await read(ours, upload_id, size=len(data)) == data


def check_stored(root: Path, object_id: str, stored: Stored) -> None:
    """Check that the size and the checksum are of the bytes in the file."""
    content = (root / "objects" / object_id[-2:] / object_id).read_bytes()
    assert stored.checksum == blake3(content).hexdigest()
    assert stored.stored_size == len(content)


@of_both
async def test_a_checksum_is_not_believed_after_another_rewrote_frames(
    tmp_path: Path, data: bytes
) -> None:
    """Even if the bytes are the same: their nonces are not."""
    upload_id = new_id()
    with two_processes(tmp_path / "blobs", compresses=True) as (ours, other):
        async with aclosing(await ours.stage(upload_id, KEY)) as staged:
            write(staged, data)
            staged.flush()
        async with aclosing(await other.resume(upload_id)) as staged:
            await staged.rewind(0, data_key=KEY)  # the first worker's answer was lost
            write(staged, data)
            digests = staged.flush()
        async with aclosing(await ours.resume(upload_id)) as staged:
            await staged.rewind(len(data), digests, data_key=KEY)
            check_stored(tmp_path / "blobs", upload_id, staged.commit(digest_of(data)))


@of_both
async def test_a_push_in_one_flushed_chunk_is_committed_without_a_write(
    tmp_path: Path, data: bytes
) -> None:
    """As clients push: all bytes in one request, the digest in the next."""
    upload_id = new_id()
    root = tmp_path / "blobs"
    with closing(FilesystemStore(root, compresses=True)) as store:
        async with aclosing(await store.stage(upload_id, KEY)) as staged:
            write(staged, data)
            digests = staged.flush()
        flushed = (root / "uploads" / upload_id).read_bytes()
        async with aclosing(await store.resume(upload_id)) as staged:
            await staged.rewind(len(data), digests, data_key=KEY)
            staged.commit(digest_of(data))
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

"""A store in a bucket whose machine keeps hot objects on its own disk."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from registry.blobstore.base import DataKey, ObjectDamaged, ObjectUnknown
from registry.blobstore.s3.bucket import Bucket
from registry.blobstore.s3.bucket_layout import object_key
from registry.blobstore.s3.disk_cache import DiskCache
from registry.blobstore.s3.files import S3Files
from registry.blobstore.s3.store import S3Store
from registry.errors import StoreUnavailable
from registry.oci.digest import digest_of
from tests.contract.blob_stores import new_id, write
from tests.s3_servers import credentials, settings_for
from tests.small_frames import KEY
from tests.waiting import until

MIB = 1 << 20
DATA = random.Random(5).randbytes(3 * MIB + 5)


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with credentials():
        yield Bucket(settings_for("seaweedfs"))


class Counts(Counter[str]):
    """What a cache has counted, in whichever thread."""

    def __call__(self, key: str, amount: int) -> None:
        self[key.removeprefix("disk_cache.")] += amount


@pytest.fixture
def counts() -> Counts:
    return Counts()


@pytest.fixture
def store(bucket: Bucket, tmp_path: Path, counts: Counts) -> Iterator[S3Store]:
    with closing(S3Store(S3Files(bucket, cache=DiskCache(tmp_path, 64 * MIB, counts)))) as made:
        yield made


async def stored(store: S3Store, key: DataKey | None) -> str:
    object_id = new_id()
    async with aclosing(await store.stage(object_id, key)) as staged:
        write(staged, DATA)
        staged.commit(digest_of(DATA))
    return object_id


async def read(store: S3Store, object_id: str, key: DataKey | None) -> bytes:
    async with aclosing(await store.open(object_id, len(DATA), key)) as found:
        return b"".join(bytes(chunk) for chunk in found.chunks())


def until_kept(folder: Path, object_id: str) -> None:
    until((folder / object_id[-2:] / object_id).exists)


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])
async def test_a_hot_object_is_read_without_the_bucket(
    store: S3Store, bucket: Bucket, tmp_path: Path, counts: Counts, key: DataKey | None
) -> None:
    object_id = await stored(store, key)
    assert await read(store, object_id, key) == DATA
    until_kept(tmp_path, object_id)
    size = (bucket.head(object_key(object_id))).size
    bucket.delete_all([object_key(object_id)])
    assert await read(store, object_id, key) == DATA
    async with aclosing(await store.open(object_id, len(DATA), key)) as found:
        region = found.file_region(7, MIB)
        assert (region is None) == (key is not None)
    sent = MIB - 7 if key is None else 0
    expected = {"reads.missed": 1, "fetched": size, "reads.hit": 2, "served": len(DATA) + sent}
    assert counts == expected
    with pytest.raises(ObjectUnknown):  # who checks the bucket, or has no row, reads the bucket
        await store.open_stored(object_id, size)
    with pytest.raises(ObjectUnknown):
        await store.open(object_id, data_key=key)


@pytest.mark.parametrize("place", [10, 2 * MIB])
async def test_a_sealed_object_that_goes_bad_in_the_cache_is_read_from_the_bucket(
    store: S3Store, tmp_path: Path, counts: Counts, place: int
) -> None:
    """Nobody takes the blob itself for damaged: its header, or a frame, is that of the file."""
    object_id = await stored(store, KEY)
    await read(store, object_id, KEY)
    until_kept(tmp_path, object_id)
    file = tmp_path / object_id[-2:] / object_id
    with file.open("r+b") as opened:
        opened.seek(place)
        opened.write(b"other bytes")
    if place > MIB:
        with pytest.raises(StoreUnavailable) as refused:
            await read(store, object_id, KEY)
        assert refused.type is StoreUnavailable  # not `ObjectChanged`
    assert await read(store, object_id, KEY) == DATA
    assert counts["bad"] == 1


async def test_an_object_that_the_bucket_has_with_a_wrong_size_is_no_bad_file_of_the_cache(
    store: S3Store, tmp_path: Path, counts: Counts
) -> None:
    object_id = await stored(store, None)
    await read(store, object_id, None)
    until_kept(tmp_path, object_id)
    with pytest.raises(ObjectDamaged):
        await store.open(object_id, len(DATA) + 1)
    assert counts["bad"] == 0


async def test_what_is_deleted_here_leaves_the_cache(store: S3Store, tmp_path: Path) -> None:
    first, second = await stored(store, None), await stored(store, None)
    for each in (first, second):
        await read(store, each, None)
        until_kept(tmp_path, each)
    await store.delete([first])
    await store.remove_duplicate(second)
    for each in (first, second):
        with pytest.raises(ObjectUnknown):
            await read(store, each, None)

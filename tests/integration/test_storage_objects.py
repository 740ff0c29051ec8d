"""Objects of buckets: kept, replaced, listed and deleted, on both databases."""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar
from unittest.mock import AsyncMock

import pytest

from cloudcore.db.base import Database
from cloudcore.events import NO_EVENTS
from cloudcore.objects.wraps import KeyDeleted, KeyDisabled
from cloudcore.storage import buckets, object_reads, object_writes, objects
from cloudcore.storage.bucket import check_bucket_name
from cloudcore.storage.bucket_rows import BYTES
from cloudcore.storage.checksums import Algorithm
from cloudcore.storage.conditions import RequestConditions
from cloudcore.storage.errors import (
    BadDigest,
    BucketAlreadyExists,
    BucketAlreadyOwnedByYou,
    BucketNotEmpty,
    BytesDamaged,
    BytesQuotaExceeded,
    ConditionFailed,
    IncompleteBody,
    InvalidBucketName,
    InvalidTag,
    KeyTooLong,
    NoSuchBucket,
    NoSuchKey,
)
from cloudcore.storage.object_rows import ObjectAttributes
from cloudcore.storage.object_writes import Digests, Terms
from cloudcore.storage.pieces.cleanup import delete_condemned
from cloudcore.storage.pieces.recounts import miscounts
from registry.buckets.store import BlobBucketBytes
from tests.databases import on_both_databases
from tests.storage_world import (
    ACME,
    GLOBEX,
    INLINE_BYTES,
    MIB,
    StorageWorld,
    body_of,
    open_storage_world,
)

T = TypeVar("T")

LARGE: Final = bytes(range(256)) * 4096
KEYS: Final = (
    "plain",
    "a/b",
    "a//b",
    "/lead",
    "trail/",
    "..",
    "a/../b",
    "a+b c",
    "100%25",
    "%2F",
    "what?",
    "*",
    "schön/日本",
    "é" * 512,
    "\x7f\x01",
)


def stored_files(storage: StorageWorld) -> list[Path]:
    root = Path(f"/proc/self/fd/{storage.store.files._folders.objects}")
    return [path for path in root.glob("*/*") if path.is_file()]


async def test_an_object_is_given_back_as_it_was_sent(storage: StorageWorld) -> None:
    for size in (0, INLINE_BYTES, INLINE_BYTES + 1, len(LARGE)):
        bucket, data = await storage.make(f"bucket-{size}"), LARGE[:size]
        attributes = ObjectAttributes("text/plain", {}, {"a": "b"})
        made = await storage.put(bucket, "key", data, attributes=attributes)
        assert (made.size, made.etag) == (size, hashlib.md5(data).hexdigest())
        assert await storage.get(bucket, "key") == data
        assert await storage.database.read(objects.find_object, bucket, "key") == made
        assert (await storage.held(bucket))[:2] == (1, size)
        stored = [path.read_bytes() for path in stored_files(storage)]
        assert len(stored) == len(await storage.files()) == (size > INLINE_BYTES)
        assert not any(data[:64] in each for each in stored), "the bytes are sealed"
        await storage.delete(bucket, "key")
        await storage.settle()


@on_both_databases
async def test_keys_survive_byte_for_byte(storage: StorageWorld) -> None:
    bucket = await storage.make()
    for key in KEYS:
        await storage.put(bucket, key, key.encode())
    assert [await storage.get(bucket, key) for key in KEYS] == [key.encode() for key in KEYS]
    listed = (await storage.page(bucket)).entries
    assert [each.key for each in listed] == sorted(KEYS, key=str.encode)
    for key in ("", "k" * 1025, "é" * 513, "a\0b", "\ud800"):
        with pytest.raises(KeyTooLong):
            await storage.put(bucket, key)


@on_both_databases
async def test_an_object_that_is_replaced_or_deleted_is_gone_and_its_bytes_later(
    storage: StorageWorld,
) -> None:
    bucket = await storage.make()
    first = await storage.put(bucket, "key", LARGE)
    second = await storage.put(bucket, "key", LARGE[1:])
    assert await storage.get(bucket, "key") == LARGE[1:]
    assert first.id != second.id
    assert await storage.held(bucket) == (1, len(LARGE) - 1, 0)
    assert len(await storage.files()) == 2
    await storage.settle()
    assert list(await storage.files()) == [second.id]
    assert await storage.delete(bucket, "key") == second
    assert await storage.delete(bucket, "key") is None
    with pytest.raises(NoSuchKey):
        await storage.get(bucket, "key")
    assert await storage.settle() == 0
    assert await storage.held(bucket) == (0, 0, 0)


async def test_condemned_bytes_that_cannot_be_deleted_are_deleted_another_time(
    storage: StorageWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = await storage.make()
    for key in ("inline", "file"):
        await storage.put(bucket, key, b"few" if key == "inline" else LARGE)
        await storage.delete(bucket, key)
    delete = AsyncMock(return_value=())  # as of files whose folder fails
    monkeypatch.setattr(BlobBucketBytes, "delete", delete)
    assert await storage.settle() == 1
    delete.assert_awaited_once()
    monkeypatch.undo()
    assert await storage.settle() == 0


async def test_who_reads_an_object_while_it_is_replaced_gets_all_of_it(
    storage: StorageWorld,
) -> None:
    bucket = await storage.make()
    await storage.put(bucket, "key", LARGE)
    found = await object_reads.find_object(storage.needs, bucket, "key")
    opened = await object_reads.open_object(storage.needs, found)
    await storage.put(bucket, "key", b"other")
    assert b"".join(map(bytes, opened.chunks())) == LARGE
    await opened.aclose()


@on_both_databases
async def test_writers_of_one_key_leave_one_whole_object(storage: StorageWorld) -> None:
    bucket = await storage.make()
    made = await asyncio.gather(*(storage.put(bucket, "key", bytes([n]) * 2000) for n in range(12)))
    data = await storage.get(bucket, "key")
    assert data in {bytes([n]) * 2000 for n in range(12)}
    assert await storage.held(bucket) == (1, 2000, 0)
    assert await storage.settle() == 1
    assert len({each.id for each in made}) == 12


@on_both_databases
async def test_conditional_writes_are_decided_in_the_transaction(storage: StorageWorld) -> None:
    bucket = await storage.make()
    new = RequestConditions(if_none_match=("*",))
    results = await asyncio.gather(
        *(storage.put(bucket, "key", bytes([n]), conditions=new) for n in range(8)),
        return_exceptions=True,
    )
    (made,) = [each for each in results if not isinstance(each, BaseException)]
    assert sum(isinstance(each, ConditionFailed) for each in results) == 7
    same = RequestConditions(if_match=(made.etag,))
    results = await asyncio.gather(
        *(storage.put(bucket, "key", b"n%d" % n, conditions=same) for n in range(8)),
        return_exceptions=True,
    )
    assert sum(isinstance(each, ConditionFailed) for each in results) == 7
    with pytest.raises(NoSuchKey):
        await storage.put(bucket, "absent", conditions=same)
    with pytest.raises(ConditionFailed):
        await storage.database.write(objects.delete_object, bucket, "key", 0, NO_EVENTS, same)
    assert await storage.files() == {}, "refused bytes are not kept"


async def test_bytes_that_are_not_those_that_were_to_come_are_not_stored(
    storage: StorageWorld,
) -> None:
    bucket = await storage.make()
    seen: list[Digests] = []

    def verify(digests: Digests) -> None:
        seen.append(digests)
        raise BadDigest("other bytes")

    terms = Terms(algorithm=Algorithm.CRC32, verify=verify)
    for data in (LARGE, b"few"):
        with pytest.raises(BadDigest):
            await storage.put(bucket, "key", data, terms=terms)
    crc = b64encode(zlib.crc32(b"few").to_bytes(4, "big")).decode()
    assert seen[1] == Digests(
        3, hashlib.md5(b"few").hexdigest(), hashlib.sha256(b"few").hexdigest(), crc
    )
    cut = body_of(LARGE, is_complete=False)
    with pytest.raises(IncompleteBody):
        await object_writes.store_object(
            storage.needs, NO_EVENTS, bucket, "key", ObjectAttributes(), cut
        )
    assert await storage.files() == {}
    assert [each async for each in storage.store.list_staged()] == []
    assert (await storage.page(bucket)).entries == []


@on_both_databases
async def test_a_quota_of_bytes_is_kept_before_and_after_the_body(storage: StorageWorld) -> None:
    bucket, other = await storage.make(), await storage.make("other")
    object.__setattr__(storage.needs, "account_bytes", 3000)
    await storage.put(bucket, "a", b"a" * 2000)

    async def unread(sink: object, finish: Callable[[bool], T], /) -> T:
        raise AssertionError("the body is not read")

    with pytest.raises(BytesQuotaExceeded) as refusal:
        await object_writes.store_object(
            storage.needs, NO_EVENTS, other, "b", ObjectAttributes(), unread, Terms(declared=1001)
        )
    assert refusal.value.params == {"quota": "bucket_bytes", "limit": 3000, "used": 2000}
    with pytest.raises(BytesQuotaExceeded):
        await storage.put(other, "b", b"b" * 1001)
    await storage.put(bucket, "a", b"a" * 1000, terms=Terms(declared=1000))
    upload = await storage.begin(other, "c")
    with pytest.raises(BytesQuotaExceeded):
        await storage.part(other, upload, 1, b"c")
    await storage.put(bucket, "a", b"")
    with pytest.raises(BytesQuotaExceeded):
        await storage.part(other, upload, 1, b"c")
    assert (await storage.database.read(BYTES.read, ACME)).used == 3000, "bytes that are gone count"
    storage.clock.advance(3601)
    await delete_condemned(storage.needs)
    piece = await storage.part(other, upload, 1, b"c" * 3000)
    await storage.complete(other, upload, piece)
    assert (await storage.database.read(BYTES.read, ACME)).used == 3000
    assert await storage.database.read(miscounts) == []
    theirs = await storage.make("theirs", GLOBEX)
    await storage.put(theirs, "a", b"a" * 3000)


async def test_tags_are_at_most_ten_of_128_and_256_characters(storage: StorageWorld) -> None:
    bucket = await storage.make()
    made = await storage.put(bucket, "key")
    assert made.attributes.tags == {}
    full = {f"{n}{'k' * 127}": "v" * 256 for n in range(10)}
    await storage.tags(bucket, "key", full)
    found = await storage.database.read(objects.find_object, bucket, "key")
    assert found.attributes.tags == full
    for bad in ({**full, "more": ""}, {"k" * 129: ""}, {"k": "v" * 257}, {"": "v"}, {"k": "\n"}):
        with pytest.raises(InvalidTag):
            await storage.tags(bucket, "key", bad)
    with pytest.raises(NoSuchKey):
        await storage.tags(bucket, "absent", {})
    await storage.put(bucket, "key")
    assert (await storage.database.read(objects.find_object, bucket, "key")).attributes.tags == {}


@on_both_databases
async def test_a_bucket_name_is_unique_in_the_region(storage: StorageWorld) -> None:
    await storage.make("taken")
    with pytest.raises(BucketAlreadyOwnedByYou):
        await storage.make("taken")
    with pytest.raises(BucketAlreadyExists):
        await storage.make("taken", GLOBEX)
    await storage.make("taken", GLOBEX, region="elsewhere")


def test_bucket_names_are_dns_names_of_3_to_63_characters_and_no_addresses() -> None:
    for name in ("abc", "a-b", "a.b.c", "1.2.3", "x" * 63, "192.168.5"):
        check_bucket_name(name)
    for name in (
        *("", "ab", "x" * 64, "A-b", "a_b", "-ab", "ab-", "a..b", ".ab"),
        *("ab.", "a.-b", "a-.b", "192.168.5.4", "böse", "a b", "a/b"),
    ):
        with pytest.raises(InvalidBucketName):
            check_bucket_name(name)


@on_both_databases
async def test_a_bucket_is_deleted_only_when_it_is_empty(storage: StorageWorld) -> None:
    bucket = await storage.make()
    await storage.put(bucket, "key")
    with pytest.raises(BucketNotEmpty):
        await storage.database.write(buckets.BUCKETS.remove, bucket, storage.clock())
    await storage.delete(bucket, "key")
    upload = await storage.begin(bucket, "key")
    with pytest.raises(BucketNotEmpty):
        await storage.database.write(buckets.BUCKETS.remove, bucket, storage.clock())
    await storage.complete(bucket, upload, await storage.part(bucket, upload, 1, b"one"))
    await storage.delete(bucket, "key")
    await storage.database.write(buckets.BUCKETS.remove, bucket, storage.clock())
    with pytest.raises(NoSuchBucket):
        await storage.put(bucket, "key")
    assert await storage.make() != bucket
    await storage.settle()


async def test_bytes_under_a_key_that_cannot_be_used_are_an_error(
    storage: StorageWorld,
) -> None:
    key = await storage.kms.make("buckets")
    bucket = await storage.make(kms_key_id=key.id)
    await storage.put(bucket, "few", b"few")
    await storage.put(bucket, "many", LARGE)
    await storage.kms.disable(key)
    for name in ("few", "many"):
        with pytest.raises(KeyDisabled):
            await storage.get(bucket, name)
    with pytest.raises(KeyDisabled):
        await storage.put(bucket, "new")
    await storage.kms.delete(key)
    with pytest.raises(KeyDeleted):
        await storage.get(bucket, "many")
    assert await storage.delete(bucket, "many") is not None


async def test_changed_bytes_are_not_given(storage: StorageWorld) -> None:
    bucket = await storage.make()
    await storage.put(bucket, "key", LARGE)
    (path,) = stored_files(storage)
    path.write_bytes(b"\0" * path.stat().st_size)
    with pytest.raises(BytesDamaged):
        await storage.get(bucket, "key")
    path.unlink()
    with pytest.raises(BytesDamaged):
        await storage.get(bucket, "key")


async def test_without_sealing_bytes_are_plain(database: Database, tmp_path: Path) -> None:
    async with open_storage_world(database, tmp_path / "buckets", seals=False) as storage:
        bucket = await storage.make()
        await storage.put(bucket, "key", LARGE)
        assert [path.read_bytes() for path in stored_files(storage)] == [LARGE]
        assert await storage.get(bucket, "key") == LARGE
        found = await object_reads.find_object(storage.needs, bucket, "key")
        opened = await object_reads.open_object(storage.needs, found)
        region = opened.file_region()
        assert region is not None
        assert region.count == MIB
        await opened.aclose()

"""Objects of buckets: kept, replaced, listed and deleted, on both databases."""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final, TypeVar

import pytest

from cloudcore.db.base import Database
from cloudcore.events import NO_EVENTS
from cloudcore.storage import buckets, object_reads, object_writes, objects
from cloudcore.storage.bucket import check_bucket_name
from cloudcore.storage.bucket_rows import used_bytes
from cloudcore.storage.checksums import Algorithm
from cloudcore.storage.cleanup import CONDEMNED_FOR, delete_condemned
from cloudcore.storage.conditions import Conditions
from cloudcore.storage.errors import (
    BadDigest,
    BucketAlreadyExists,
    BucketAlreadyOwnedByYou,
    BucketNotEmpty,
    BytesDamaged,
    ConditionFailed,
    IncompleteBody,
    InvalidBucketName,
    InvalidTag,
    KeyTooLong,
    KmsKeyDeleted,
    KmsKeyDisabled,
    NoSuchBucket,
    NoSuchKey,
    QuotaOfBytes,
)
from cloudcore.storage.object_rows import ObjectAttributes
from cloudcore.storage.object_writes import Digests, Terms
from cloudcore.storage.recounts import miscounts
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


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> AsyncIterator[StorageWorld]:
    async with open_storage_world(database, tmp_path / "buckets") as world:
        yield world


@on_both_databases
@pytest.mark.parametrize("size", [0, INLINE_BYTES, INLINE_BYTES + 1, len(LARGE)])
async def test_an_object_is_given_back_as_it_was_sent(world: StorageWorld, size: int) -> None:
    bucket, data = await world.make(), LARGE[:size]
    made = await world.put(
        bucket, "key", data, attributes=ObjectAttributes("text/plain", {}, {"a": "b"})
    )
    assert (made.size, made.etag) == (size, hashlib.md5(data).hexdigest())
    assert await world.get(bucket, "key") == data
    found = await world.database.read(objects.find_object, bucket, "key")
    assert found == made
    assert (await world.held(bucket))[:2] == (1, size)
    assert len(await world.files()) == (size > INLINE_BYTES)
    stored = [path.read_bytes() for path in world_files(world)]
    assert not any(data[:64] in each for each in stored), "the bytes are sealed"


def world_files(world: StorageWorld) -> list[Path]:
    root = Path(f"/proc/self/fd/{world.store.files._folders.objects}")
    return [path for path in root.glob("*/*") if path.is_file()]


@on_both_databases
async def test_keys_survive_byte_for_byte(world: StorageWorld) -> None:
    bucket = await world.make()
    for key in KEYS:
        await world.put(bucket, key, key.encode())
    assert [await world.get(bucket, key) for key in KEYS] == [key.encode() for key in KEYS]
    listed = (await world.page(bucket)).entries
    assert [each.key for each in listed] == sorted(KEYS, key=str.encode)
    for key in ("", "k" * 1025, "é" * 513, "a\0b", "\ud800"):
        with pytest.raises(KeyTooLong):
            await world.put(bucket, key)


@on_both_databases
async def test_an_object_that_is_replaced_or_deleted_is_gone_and_its_bytes_later(
    world: StorageWorld,
) -> None:
    bucket = await world.make()
    first = await world.put(bucket, "key", LARGE)
    second = await world.put(bucket, "key", LARGE[1:])
    assert await world.get(bucket, "key") == LARGE[1:]
    assert first.id != second.id
    assert await world.held(bucket) == (1, len(LARGE) - 1, 0)
    assert len(await world.files()) == 2
    world.clock.advance(CONDEMNED_FOR // 1_000_000 + 1)
    await delete_condemned(world.needs)
    assert list(await world.files()) == [second.id]
    assert await world.delete(bucket, "key") == second
    assert await world.delete(bucket, "key") is None
    with pytest.raises(NoSuchKey):
        await world.get(bucket, "key")
    world.clock.advance(CONDEMNED_FOR // 1_000_000 + 1)
    await delete_condemned(world.needs)
    assert await world.files() == {}
    assert await world.held(bucket) == (0, 0, 0)


@on_both_databases
async def test_who_reads_an_object_while_it_is_replaced_gets_all_of_it(
    world: StorageWorld,
) -> None:
    bucket = await world.make()
    await world.put(bucket, "key", LARGE)
    found = await object_reads.find_object(world.needs, bucket, "key")
    opened = await object_reads.open_object(world.needs, found)
    await world.put(bucket, "key", b"other")
    assert b"".join(map(bytes, opened.chunks())) == LARGE
    await opened.aclose()


@on_both_databases
async def test_writers_of_one_key_leave_one_whole_object(world: StorageWorld) -> None:
    bucket = await world.make()
    made = await asyncio.gather(*(world.put(bucket, "key", bytes([n]) * 2000) for n in range(12)))
    data = await world.get(bucket, "key")
    assert data in {bytes([n]) * 2000 for n in range(12)}
    assert await world.held(bucket) == (1, 2000, 0)
    world.clock.advance(CONDEMNED_FOR // 1_000_000 + 1)
    await delete_condemned(world.needs)
    assert len(await world.files()) == 1
    assert len({each.id for each in made}) == 12


@on_both_databases
async def test_conditional_writes_are_decided_in_the_transaction(world: StorageWorld) -> None:
    bucket = await world.make()
    new = Conditions(if_none_match=("*",))
    results = await asyncio.gather(
        *(world.put(bucket, "key", bytes([n]), conditions=new) for n in range(8)),
        return_exceptions=True,
    )
    (made,) = [each for each in results if not isinstance(each, BaseException)]
    assert sum(isinstance(each, ConditionFailed) for each in results) == 7
    same = Conditions(if_match=(made.etag,))
    results = await asyncio.gather(
        *(world.put(bucket, "key", b"n%d" % n, conditions=same) for n in range(8)),
        return_exceptions=True,
    )
    assert sum(isinstance(each, ConditionFailed) for each in results) == 7
    with pytest.raises(NoSuchKey):
        await world.put(bucket, "absent", conditions=same)
    with pytest.raises(ConditionFailed):
        await world.database.write(objects.delete_object, bucket, "key", 0, NO_EVENTS, same)
    assert await world.files() == {}, "refused bytes are not kept"


@on_both_databases
async def test_bytes_that_are_not_those_that_were_to_come_are_not_stored(
    world: StorageWorld,
) -> None:
    bucket = await world.make()
    seen: list[Digests] = []

    def verify(digests: Digests) -> None:
        seen.append(digests)
        raise BadDigest("other bytes")

    terms = Terms(algorithm=Algorithm.CRC32, verify=verify)
    for data in (LARGE, b"few"):
        with pytest.raises(BadDigest):
            await world.put(bucket, "key", data, terms=terms)
    crc = b64encode(zlib.crc32(b"few").to_bytes(4, "big")).decode()
    assert seen[1] == Digests(
        3, hashlib.md5(b"few").hexdigest(), hashlib.sha256(b"few").hexdigest(), crc
    )
    cut = body_of(LARGE, is_complete=False)
    with pytest.raises(IncompleteBody):
        await object_writes.store_object(
            world.needs, NO_EVENTS, bucket, "key", ObjectAttributes(), cut
        )
    assert await world.files() == {}
    assert [each async for each in world.store.list_staged()] == []
    assert (await world.page(bucket)).entries == []


@on_both_databases
async def test_a_quota_of_bytes_is_kept_before_and_after_the_body(world: StorageWorld) -> None:
    bucket, other = await world.make(), await world.make("other")
    object.__setattr__(world.needs, "account_bytes", 3000)
    await world.put(bucket, "a", b"a" * 2000)

    async def unread(sink: object, finish: Callable[[bool], T], /) -> T:
        raise AssertionError("the body is not read")

    with pytest.raises(QuotaOfBytes) as refusal:
        await object_writes.store_object(
            world.needs, NO_EVENTS, other, "b", ObjectAttributes(), unread, Terms(declared=1001)
        )
    assert refusal.value.params == {"quota": "bucket_bytes", "limit": 3000, "used": 2000}
    with pytest.raises(QuotaOfBytes):
        await world.put(other, "b", b"b" * 1001)
    await world.put(bucket, "a", b"a" * 1000, terms=Terms(declared=1000))
    upload = await world.begin(other, "c")
    with pytest.raises(QuotaOfBytes):
        await world.part(other, upload, 1, b"c")
    await world.put(bucket, "a", b"")
    with pytest.raises(QuotaOfBytes):
        await world.part(other, upload, 1, b"c")
    assert await world.database.read(used_bytes, ACME) == 3000, "bytes that are gone count"
    world.clock.advance(3601)
    await delete_condemned(world.needs)
    piece = await world.part(other, upload, 1, b"c" * 3000)
    await world.complete(other, upload, piece)
    assert await world.database.read(used_bytes, ACME) == 3000
    assert await world.database.read(miscounts) == []
    theirs = await world.make("theirs", GLOBEX)
    await world.put(theirs, "a", b"a" * 3000)


@on_both_databases
async def test_tags_are_at_most_ten_of_128_and_256_characters(world: StorageWorld) -> None:
    bucket = await world.make()
    made = await world.put(bucket, "key")
    assert made.attributes.tags == {}
    full = {f"{n}{'k' * 127}": "v" * 256 for n in range(10)}
    await world.tags(bucket, "key", full)
    found = await world.database.read(objects.find_object, bucket, "key")
    assert found.attributes.tags == full
    for bad in ({**full, "more": ""}, {"k" * 129: ""}, {"k": "v" * 257}, {"": "v"}, {"k": "\n"}):
        with pytest.raises(InvalidTag):
            await world.tags(bucket, "key", bad)
    with pytest.raises(NoSuchKey):
        await world.tags(bucket, "absent", {})
    await world.put(bucket, "key")
    assert (await world.database.read(objects.find_object, bucket, "key")).attributes.tags == {}


@on_both_databases
async def test_a_bucket_name_is_unique_in_the_region(world: StorageWorld) -> None:
    await world.make("taken")
    with pytest.raises(BucketAlreadyOwnedByYou):
        await world.make("taken")
    with pytest.raises(BucketAlreadyExists):
        await world.make("taken", GLOBEX)
    await world.make("taken", GLOBEX, region="elsewhere")


@pytest.mark.parametrize(
    ("name", "is_good"),
    [
        *((name, True) for name in ("abc", "a-b", "a.b.c", "1.2.3", "x" * 63, "192.168.5")),
        *(
            (name, False)
            for name in ("", "ab", "x" * 64, "A-b", "a_b", "-ab", "ab-", "a..b", ".ab")
        ),
        *((name, False) for name in ("ab.", "a.-b", "a-.b", "192.168.5.4", "böse", "a b", "a/b")),
    ],
)
def test_bucket_names_are_dns_names_of_3_to_63_characters_and_no_addresses(
    name: str, is_good: bool
) -> None:
    if is_good:
        check_bucket_name(name)
        return
    with pytest.raises(InvalidBucketName):
        check_bucket_name(name)


@on_both_databases
async def test_a_bucket_is_deleted_only_when_it_is_empty(world: StorageWorld) -> None:
    bucket = await world.make()
    await world.put(bucket, "key")
    with pytest.raises(BucketNotEmpty):
        await world.database.write(buckets.BUCKETS.remove, bucket, world.clock())
    await world.delete(bucket, "key")
    upload = await world.begin(bucket, "key")
    with pytest.raises(BucketNotEmpty):
        await world.database.write(buckets.BUCKETS.remove, bucket, world.clock())
    await world.complete(bucket, upload, await world.part(bucket, upload, 1, b"one"))
    await world.delete(bucket, "key")
    await world.database.write(buckets.BUCKETS.remove, bucket, world.clock())
    with pytest.raises(NoSuchBucket):
        await world.put(bucket, "key")
    assert await world.make() != bucket
    world.clock.advance(CONDEMNED_FOR // 1_000_000 + 1)
    await delete_condemned(world.needs)


@on_both_databases
async def test_bytes_under_a_key_that_cannot_be_used_are_an_error(
    world: StorageWorld,
) -> None:
    key = await world.kms.make("buckets")
    bucket = await world.make(kms_key_id=key.id)
    await world.put(bucket, "few", b"few")
    await world.put(bucket, "many", LARGE)
    await world.kms.disable(key)
    for name in ("few", "many"):
        with pytest.raises(KmsKeyDisabled):
            await world.get(bucket, name)
    with pytest.raises(KmsKeyDisabled):
        await world.put(bucket, "new")
    await world.kms.delete(key)
    with pytest.raises(KmsKeyDeleted):
        await world.get(bucket, "many")
    assert await world.delete(bucket, "many") is not None


@on_both_databases
async def test_changed_bytes_are_not_given(world: StorageWorld) -> None:
    bucket = await world.make()
    await world.put(bucket, "key", LARGE)
    (path,) = world_files(world)
    path.write_bytes(b"\0" * path.stat().st_size)
    with pytest.raises(BytesDamaged):
        await world.get(bucket, "key")
    path.unlink()
    with pytest.raises(BytesDamaged):
        await world.get(bucket, "key")


async def test_without_sealing_bytes_are_plain(database: Database, tmp_path: Path) -> None:
    async with open_storage_world(database, tmp_path / "buckets", seals=False) as world:
        bucket = await world.make()
        await world.put(bucket, "key", LARGE)
        assert [path.read_bytes() for path in world_files(world)] == [LARGE]
        assert await world.get(bucket, "key") == LARGE
        found = await object_reads.find_object(world.needs, bucket, "key")
        opened = await object_reads.open_object(world.needs, found)
        region = opened.file_region()
        assert region is not None
        assert region.count == MIB
        await opened.aclose()

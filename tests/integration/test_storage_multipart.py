"""Multipart uploads: parts that become one object at once, or nothing."""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from cloudcore.db.base import Database
from cloudcore.storage import multipart, upload_rows
from cloudcore.storage.bucket import MAX_ASSEMBLED_BYTES
from cloudcore.storage.cleanup import (
    CONDEMNED_FOR,
    abort_abandoned,
    delete_condemned,
    forget_completed,
)
from cloudcore.storage.conditions import Conditions
from cloudcore.storage.errors import (
    BadDigest,
    ConditionFailed,
    EntityTooLarge,
    EntityTooSmall,
    InvalidPart,
    InvalidPartNumber,
    InvalidPartOrder,
    NoSuchKey,
    NoSuchUpload,
    SizeDiffers,
)
from cloudcore.storage.multipart import ABANDONED_SECONDS, KEPT_SECONDS, GivenPart
from tests.databases import on_both_databases
from tests.storage_world import StorageWorld, open_storage_world

ONE: Final = bytes(range(256)) * 20480  # 5 MiB
TWO: Final = ONE[::-1]


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> AsyncIterator[StorageWorld]:
    async with open_storage_world(database, tmp_path / "buckets") as world:
        yield world


async def settle(world: StorageWorld) -> int:
    """Let condemned bytes go; return how many pieces the store has."""
    world.clock.advance(CONDEMNED_FOR // 1_000_000 + 1)
    await delete_condemned(world.needs)
    return len(await world.files())


@on_both_databases
async def test_parts_become_an_object_and_what_is_unused_is_freed(world: StorageWorld) -> None:
    bucket = await world.make()
    upload = await world.begin(bucket, "key")
    await world.part(bucket, upload, 1, TWO)
    last = await world.part(bucket, upload, 9, b"the end" * 500)
    first = await world.part(bucket, upload, 1, ONE)
    await world.part(bucket, upload, 2, TWO)
    assert (await world.held(bucket))[0::2] == (0, len(ONE) * 2 + 3500)
    with pytest.raises(NoSuchKey):
        await world.get(bucket, "key")
    made = await world.complete(bucket, upload, first, last)
    outer = hashlib.md5(bytes.fromhex(first.md5) + bytes.fromhex(last.md5)).hexdigest()
    assert (made.etag, made.size) == (f"{outer}-2", len(ONE) + 3500)
    assert await world.get(bucket, "key") == ONE + b"the end" * 500
    edge = len(ONE)
    assert await world.get(bucket, "key", edge - 3, edge + 4) == ONE[-3:] + b"the "
    assert await world.get(bucket, "key", edge + 1, edge + 3) == b"he"
    assert await world.held(bucket) == (1, len(ONE) + 3500, 0)
    assert await settle(world) == 2
    await world.put(bucket, "key", b"")
    assert await settle(world) == 0


@on_both_databases
async def test_a_completion_with_a_wrong_list_of_parts_is_refused(world: StorageWorld) -> None:
    bucket = await world.make()
    upload = await world.begin(bucket, "key")
    small = await world.part(bucket, upload, 1, b"small")
    large = await world.part(bucket, upload, 2, ONE)
    for refusal, parts in (
        (InvalidPart, ()),
        (InvalidPart, (large, GivenPart(3, "0" * 32))),
        (InvalidPart, (GivenPart(2, small.md5),)),
        (InvalidPartOrder, (large, small)),
        (InvalidPartOrder, (large, large)),
        (EntityTooSmall, (small, large)),
    ):
        with pytest.raises(refusal):
            await world.complete(bucket, upload, *parts)
    with pytest.raises(SizeDiffers):
        await world.complete(bucket, upload, large, size=3)
    for number in (0, 10_001):
        with pytest.raises(InvalidPartNumber):
            await world.part(bucket, upload, number, b"part")
    with pytest.raises(EntityTooLarge):
        await world.part(bucket, upload, 1, b"", declared=(5 << 30) + 1)
    assert (await world.complete(bucket, upload, large)).size == len(ONE), "it is still usable"


async def test_an_upload_that_cannot_be_completed_in_an_hour_is_refused(
    world: StorageWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_ASSEMBLED_BYTES == 3600 * 85 << 20
    monkeypatch.setattr(multipart, "MAX_ASSEMBLED_BYTES", len(ONE))
    bucket = await world.make()
    upload = await world.begin(bucket, "key")
    parts = [await world.part(bucket, upload, n, data) for n, data in ((1, ONE), (2, b"more"))]
    with pytest.raises(EntityTooLarge):
        await world.complete(bucket, upload, *parts)


@on_both_databases
async def test_an_abort_frees_all_parts_and_a_second_one_finds_no_upload(
    world: StorageWorld,
) -> None:
    bucket = await world.make()
    upload, other = [await world.begin(bucket, "key") for _ in range(2)]
    for number in (1, 2):
        await world.part(bucket, upload, number, ONE)
    assert await world.uploads(bucket) == [upload.id, other.id]
    await world.abort(bucket, upload)
    assert await world.uploads(bucket) == [other.id]
    assert await world.held(bucket) == (0, 0, 0)
    assert await settle(world) == 0
    with pytest.raises(NoSuchUpload):
        await world.abort(bucket, upload)
    with pytest.raises(NoSuchUpload):
        await world.part(bucket, upload, 1, b"part")
    with pytest.raises(NoSuchUpload):
        await world.complete(bucket, upload, GivenPart(1, "0" * 32))


@on_both_databases
async def test_a_completion_is_repeated_with_the_same_answer(world: StorageWorld) -> None:
    bucket = await world.make()
    upload = await world.begin(bucket, "key")
    part = await world.part(bucket, upload, 1, b"part")
    results = await asyncio.gather(*(world.complete(bucket, upload, part) for _ in range(4)))
    assert len({made.id for made in results}) == 1
    await world.put(bucket, "key", b"newer")
    assert await world.complete(bucket, upload, part) == results[0]
    assert await world.get(bucket, "key") == b"newer", "the object is not made again"
    with pytest.raises(NoSuchUpload):
        await world.complete(bucket, upload, GivenPart(2, part.md5))
    with pytest.raises(NoSuchUpload):
        await world.abort(bucket, upload)
    world.clock.advance(KEPT_SECONDS - 1)
    assert await world.database.write(forget_completed, world.clock()) == 0
    world.clock.advance(2)
    assert await world.database.write(forget_completed, world.clock()) == 1
    with pytest.raises(NoSuchUpload):
        await world.complete(bucket, upload, part)


@on_both_databases
async def test_a_completion_that_fails_changes_nothing(world: StorageWorld) -> None:
    bucket = await world.make()
    old = await world.put(bucket, "key", b"old")
    upload = await world.begin(bucket, "key")
    part = await world.part(bucket, upload, 1, ONE)
    new = Conditions(if_none_match=("*",))
    with pytest.raises(ConditionFailed):
        await world.complete(bucket, upload, part, conditions=new)
    assert await world.get(bucket, "key") == b"old"
    same = Conditions(if_match=(old.etag,))
    await world.complete(bucket, upload, part, conditions=same)
    assert await world.get(bucket, "key") == ONE


@on_both_databases
async def test_parts_sent_at_once_replace_each_other(world: StorageWorld) -> None:
    bucket = await world.make()
    upload = await world.begin(bucket, "key")
    await asyncio.gather(
        *(world.part(bucket, upload, 1 + n % 2, bytes([n]) * 2000) for n in range(12))
    )
    assert (await world.held(bucket)).upload_bytes == 4000
    assert await settle(world) == 2


@on_both_databases
@pytest.mark.parametrize("kind", ["FULL_OBJECT", "COMPOSITE"])
async def test_a_checksum_of_the_whole_is_made_of_those_of_the_parts(
    world: StorageWorld, kind: str
) -> None:
    bucket = await world.make()
    upload = await world.begin(bucket, "key", checksum_algorithm="CRC32", checksum_type=kind)
    parts = [await world.part(bucket, upload, n, data) for n, data in ((1, ONE), (2, TWO))]
    given = [GivenPart(each.number, each.md5, {"CRC32": str(each.checksum)}) for each in parts]
    wrong = given[1]._replace(checksums={"CRC32": "AAAAAA=="})
    with pytest.raises(InvalidPart):
        await world.complete(bucket, upload, given[0], wrong)
    crcs = [zlib.crc32(data).to_bytes(4, "big") for data in (ONE, TWO)]
    if kind == "FULL_OBJECT":
        value = b64encode(zlib.crc32(ONE + TWO).to_bytes(4, "big")).decode()
    else:
        value = b64encode(zlib.crc32(b"".join(crcs)).to_bytes(4, "big")).decode() + "-2"
    with pytest.raises(BadDigest):
        await world.complete(bucket, upload, *given, checksum=("CRC32", "AAAAAA=="))
    made = await world.complete(bucket, upload, *given, checksum=("CRC32", value))
    assert made.checksum == ("CRC32", value, kind)


@on_both_databases
async def test_abandoned_uploads_are_aborted_after_a_week(world: StorageWorld) -> None:
    bucket = await world.make()
    old = await world.begin(bucket, "key")
    await world.part(bucket, old, 1, ONE)
    world.clock.advance(ABANDONED_SECONDS - 10)
    young = await world.begin(bucket, "key")
    await abort_abandoned(world.needs)
    assert await world.uploads(bucket) == [old.id, young.id]
    world.clock.advance(20)
    await abort_abandoned(world.needs)
    assert await world.uploads(bucket) == [young.id]
    assert await settle(world) == 0
    page = await world.database.read(
        upload_rows.count_uploads, bucket.account_id, bucket.id, (b"", b"\xff")
    )
    assert page == 1


@on_both_databases
async def test_an_upload_of_another_bucket_is_unknown(world: StorageWorld) -> None:
    bucket, other = await world.make(), await world.make("other")
    upload = await world.begin(bucket, "key")
    with pytest.raises(NoSuchUpload):
        await world.part(other, upload, 1, b"part")
    with pytest.raises(NoSuchUpload):
        await world.abort(other, upload)

"""Multipart uploads: parts that become one object at once, or nothing."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Final

import pytest

from cloudcore.storage import multipart, upload_rows
from cloudcore.storage.conditions import RequestConditions
from cloudcore.storage.errors import (
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
from cloudcore.storage.pieces.cleanup import (
    abort_abandoned,
    forget_completed,
)
from tests.databases import on_both_databases
from tests.storage_world import StorageWorld

ONE: Final = bytes(range(256)) * 20480  # 5 MiB
TWO: Final = ONE[::-1]


@on_both_databases
async def test_parts_become_an_object_and_what_is_unused_is_freed(storage: StorageWorld) -> None:
    bucket = await storage.make()
    upload = await storage.begin(bucket, "key")
    await storage.part(bucket, upload, 1, TWO)
    last = await storage.part(bucket, upload, 9, b"the end" * 500)
    first = await storage.part(bucket, upload, 1, ONE)
    await storage.part(bucket, upload, 2, TWO)
    assert (await storage.held(bucket))[0::2] == (0, len(ONE) * 2 + 3500)
    with pytest.raises(NoSuchKey):
        await storage.get(bucket, "key")
    made = await storage.complete(bucket, upload, first, last)
    outer = hashlib.md5(bytes.fromhex(first.md5) + bytes.fromhex(last.md5)).hexdigest()
    assert (made.etag, made.size) == (f"{outer}-2", len(ONE) + 3500)
    assert await storage.get(bucket, "key") == ONE + b"the end" * 500
    edge = len(ONE)
    assert await storage.get(bucket, "key", edge - 3, edge + 4) == ONE[-3:] + b"the "
    assert await storage.get(bucket, "key", edge + 1, edge + 3) == b"he"
    assert await storage.held(bucket) == (1, len(ONE) + 3500, 0)
    assert await storage.settle() == 2
    await storage.put(bucket, "key", b"")
    assert await storage.settle() == 0


async def test_a_completion_with_a_wrong_list_of_parts_is_refused(storage: StorageWorld) -> None:
    bucket = await storage.make()
    upload = await storage.begin(bucket, "key")
    small = await storage.part(bucket, upload, 1, b"small")
    large = await storage.part(bucket, upload, 2, ONE)
    for refusal, parts in (
        (InvalidPart, ()),
        (InvalidPart, (large, GivenPart(3, "0" * 32))),
        (InvalidPart, (GivenPart(2, small.md5),)),
        (InvalidPartOrder, (large, small)),
        (InvalidPartOrder, (large, large)),
        (EntityTooSmall, (small, large)),
    ):
        with pytest.raises(refusal):
            await storage.complete(bucket, upload, *parts)
    with pytest.raises(SizeDiffers):
        await storage.complete(bucket, upload, large, size=3)
    for number in (0, 10_001):
        with pytest.raises(InvalidPartNumber):
            await storage.part(bucket, upload, number, b"part")
    with pytest.raises(EntityTooLarge):
        await storage.part(bucket, upload, 1, b"", declared=(5 << 30) + 1)
    assert (await storage.complete(bucket, upload, large)).size == len(ONE), "it is still usable"


async def test_an_upload_that_cannot_be_completed_in_an_hour_is_refused(
    storage: StorageWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert multipart.MAX_ASSEMBLED_BYTES == 3600 * 85 << 20
    monkeypatch.setattr(multipart, "MAX_ASSEMBLED_BYTES", len(ONE))
    bucket = await storage.make()
    upload = await storage.begin(bucket, "key")
    parts = [await storage.part(bucket, upload, n, data) for n, data in ((1, ONE), (2, b"more"))]
    with pytest.raises(EntityTooLarge):
        await storage.complete(bucket, upload, *parts)


@on_both_databases
async def test_an_abort_frees_all_parts_and_a_second_one_finds_no_upload(
    storage: StorageWorld,
) -> None:
    bucket = await storage.make()
    upload, other = [await storage.begin(bucket, "key") for _ in range(2)]
    for number in (1, 2):
        await storage.part(bucket, upload, number, ONE)
    assert await storage.uploads(bucket) == [upload.id, other.id]
    await storage.abort(bucket, upload)
    assert await storage.uploads(bucket) == [other.id]
    assert await storage.held(bucket) == (0, 0, 0)
    assert await storage.settle() == 0
    for place, unknown in ((bucket, upload), (await storage.make("other"), other)):
        with pytest.raises(NoSuchUpload):
            await storage.abort(place, unknown)
        with pytest.raises(NoSuchUpload):
            await storage.part(place, unknown, 1, b"part")
        with pytest.raises(NoSuchUpload):
            await storage.complete(place, unknown, GivenPart(1, "0" * 32))


@on_both_databases
async def test_a_completion_is_repeated_with_the_same_answer(storage: StorageWorld) -> None:
    bucket = await storage.make()
    upload = await storage.begin(bucket, "key")
    part = await storage.part(bucket, upload, 1, b"part")
    results = await asyncio.gather(*(storage.complete(bucket, upload, part) for _ in range(4)))
    assert len({made.id for made in results}) == 1
    await storage.put(bucket, "key", b"newer")
    assert await storage.complete(bucket, upload, part) == results[0]
    assert await storage.get(bucket, "key") == b"newer", "the object is not made again"
    with pytest.raises(NoSuchUpload):
        await storage.complete(bucket, upload, GivenPart(2, part.md5))
    with pytest.raises(NoSuchUpload):
        await storage.abort(bucket, upload)
    storage.clock.advance(KEPT_SECONDS - 1)
    assert await storage.database.write(forget_completed, storage.clock()) == 0
    storage.clock.advance(2)
    assert await storage.database.write(forget_completed, storage.clock()) == 1
    with pytest.raises(NoSuchUpload):
        await storage.complete(bucket, upload, part)


async def test_a_completion_that_fails_changes_nothing(storage: StorageWorld) -> None:
    bucket = await storage.make()
    old = await storage.put(bucket, "key", b"old")
    upload = await storage.begin(bucket, "key")
    part = await storage.part(bucket, upload, 1, ONE)
    new = RequestConditions(if_none_match=("*",))
    with pytest.raises(ConditionFailed):
        await storage.complete(bucket, upload, part, conditions=new)
    assert await storage.get(bucket, "key") == b"old"
    same = RequestConditions(if_match=(old.etag,))
    await storage.complete(bucket, upload, part, conditions=same)
    assert await storage.get(bucket, "key") == ONE


@on_both_databases
async def test_parts_sent_at_once_replace_each_other(storage: StorageWorld) -> None:
    bucket = await storage.make()
    upload = await storage.begin(bucket, "key")
    await asyncio.gather(
        *(storage.part(bucket, upload, 1 + n % 2, bytes([n]) * 2000) for n in range(12))
    )
    assert (await storage.held(bucket)).upload_bytes == 4000
    assert await storage.settle() == 2


@on_both_databases
async def test_abandoned_uploads_are_aborted_after_a_week(storage: StorageWorld) -> None:
    bucket = await storage.make()
    old = await storage.begin(bucket, "key")
    await storage.part(bucket, old, 1, ONE)
    storage.clock.advance(ABANDONED_SECONDS - 10)
    young = await storage.begin(bucket, "key")
    await abort_abandoned(storage.needs)
    assert await storage.uploads(bucket) == [old.id, young.id]
    storage.clock.advance(20)
    await abort_abandoned(storage.needs)
    assert await storage.uploads(bucket) == [young.id]
    assert await storage.settle() == 0
    page = await storage.database.read(
        upload_rows.count_uploads, bucket.account_id, bucket.id, (b"", b"\xff")
    )
    assert page == 1

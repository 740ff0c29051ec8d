"""A process killed while a bucket moves to another key, or a deleted key shreds its pieces."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from cloudcore.objects.wraps import KeyDeleted
from cloudcore.storage.bucket import Bucket
from cloudcore.storage.pieces import keys as piece_keys
from cloudcore.storage.pieces.cleanup import shred_deleted_keys
from tests.databases import opened
from tests.fault.bucket_key_worker import PORTION, REWRAP_STEPS, SHRED_STEPS
from tests.fault.deaths import let_die
from tests.storage_world import StorageWorld, open_storage_world

WORKER: Final = "tests.fault.bucket_key_worker"
LARGE: Final = b"0123456789" * 1000
FEW: Final = b"few"
NAMES: Final = [f"{number}" for number in range(6)]


def bytes_of(name: str) -> bytes:
    return LARGE if int(name) % 2 else FEW


async def fill(world: StorageWorld, bucket: Bucket) -> None:
    for name in NAMES:
        await world.put(bucket, name, bytes_of(name))


@pytest.mark.parametrize("step", REWRAP_STEPS)
async def test_a_rewrap_that_is_killed_goes_on(
    metadata_url: str, tmp_path: Path, step: str
) -> None:
    folder = tmp_path / "buckets"
    async with opened(metadata_url) as database, open_storage_world(database, folder) as world:
        before, after = await world.kms.make("before"), await world.kms.make("after")
        bucket = await world.make(kms_key_id=before.id)
        await fill(world, bucket)
        bound, run = await world.bind(bucket, after.id)
        await asyncio.to_thread(let_die, WORKER, "rewrap", metadata_url, str(folder), step)
        # The first step found no parts of uploads; the second one looked at the first objects.
        moved = PORTION if step == "between two steps" else 0
        assert (await world.under(after.id))[0] == moved
        assert (await world.under(before.id))[0] == len(NAMES) - moved
        for name in NAMES:
            assert await world.get(bound, name) == bytes_of(name)
        ended = await world.end_rewrap(run)
        assert (ended.counts["moved"], ended.done) == (len(NAMES), len(NAMES))
        await world.kms.delete(before)
        await shred_deleted_keys(world.needs)
        for name in NAMES:
            assert await world.get(bound, name) == bytes_of(name)


async def test_a_shredding_that_is_killed_at_each_step_goes_on(
    metadata_url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "buckets"
    async with opened(metadata_url) as database, open_storage_world(database, folder) as world:
        key = await world.kms.make("key")
        bucket, other = await world.make(kms_key_id=key.id), await world.make("other")
        await fill(world, bucket)
        kept = await world.put(other, "kept", LARGE)
        await world.kms.delete(key)
        for step in SHRED_STEPS:
            await asyncio.to_thread(let_die, WORKER, "shred", metadata_url, str(folder), step)
            closed = await world.database.read(piece_keys.list_under_deleted_key, 100)
            shredded = PORTION if step == "between two batches" else 0
            assert len(closed) == len(NAMES) - shredded, step
            assert await world.get(other, "kept") == LARGE
        await shred_deleted_keys(world.needs)
        assert not await world.database.read(piece_keys.list_under_deleted_key, 1)
        assert list(await world.files()) == [kept.id]
        for name in NAMES:
            with pytest.raises(KeyDeleted):
                await world.get(bucket, name)
            await world.delete(bucket, name)
        assert (await world.held(bucket))[:2] == (0, 0)
        assert await world.get(other, "kept") == LARGE

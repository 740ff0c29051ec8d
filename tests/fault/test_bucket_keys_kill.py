"""A process killed while a bucket moves to another key, or a deleted key shreds its pieces."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection
from cloudcore.jobs.kinds import Done
from cloudcore.jobs.runs import Run, find_run
from cloudcore.objects.wraps import KeyDeleted
from cloudcore.storage import buckets
from cloudcore.storage.bucket import Bucket
from cloudcore.storage.pieces import keys as piece_keys
from cloudcore.storage.pieces import rewrapping
from cloudcore.storage.pieces.cleanup import shred_deleted_keys
from tests.databases import opened
from tests.fault.bucket_key_worker import PORTION, REWRAP_STEPS, SHRED_STEPS
from tests.fault.deaths import let_die
from tests.jobs import find_job, job_ids
from tests.storage_world import ACME, StorageWorld, open_storage_world

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
        bound, run = await bind(world, bucket, after.id)
        await asyncio.to_thread(let_die, WORKER, "rewrap", metadata_url, str(folder), step)
        # The first step found no parts of uploads; the second one looked at the first objects.
        moved = PORTION if step == "between two steps" else 0
        assert await count_under(world, after.id) == moved
        assert await count_under(world, before.id) == len(NAMES) - moved
        for name in NAMES:
            assert await world.get(bound, name) == bytes_of(name)
        ended = await finish(world, run)
        assert (ended.counts["moved"], ended.done) == (len(NAMES), len(NAMES))
        await world.kms.delete(before)
        await shred_deleted_keys(world.needs)
        for name in NAMES:
            assert await world.get(bound, name) == bytes_of(name)


async def bind(world: StorageWorld, bucket: Bucket, key_id: str) -> tuple[Bucket, Run]:
    """Bind a bucket to a key, as its route does."""

    def change(tx: Connection) -> tuple[Bucket, Run]:
        changed = buckets.BUCKETS.update(tx, bucket, {"kms_key_id": key_id}, world.clock())
        return changed, rewrapping.start_rewrap(
            tx, changed, uuid7(), started_by="me", started_by_source=None, now=world.clock()
        )

    return await world.database.write(change)


async def count_under(world: StorageWorld, key_id: str) -> int:
    found = await world.database.read(piece_keys.count_under, ACME, key_id, 1000)
    return int(found[0])


async def finish(world: StorageWorld, run: Run) -> Run:
    """Take the steps that are left, from where the job is."""
    job = await world.database.read(find_job, (await world.database.read(job_ids))[-1])
    assert job is not None
    is_over = False
    while not is_over:
        found = await world.database.read(find_run, rewrapping.KIND, run.scope_id, run.id)
        assert found is not None
        outcome = await rewrapping.run_step(world.needs, found, job)
        assert outcome.change is not None
        await world.database.write(outcome.change)
        is_over = isinstance(outcome, Done)
        job = job if isinstance(outcome, Done) else job._replace(cursor=outcome.cursor)
    ended = await world.database.read(find_run, rewrapping.KIND, run.scope_id, run.id)
    assert ended is not None
    return ended


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
            closed = await world.database.read(piece_keys.list_closed, 100)
            shredded = PORTION if step == "between two batches" else 0
            assert len(closed) == len(NAMES) - shredded, step
            assert await world.get(other, "kept") == LARGE
        await shred_deleted_keys(world.needs)
        assert not await world.database.read(piece_keys.list_closed, 1)
        assert list(await world.files()) == [kept.id]
        for name in NAMES:
            with pytest.raises(KeyDeleted):
                await world.get(bucket, name)
            await world.delete(bucket, name)
        assert (await world.held(bucket))[:2] == (0, 0)
        assert await world.get(other, "kept") == LARGE

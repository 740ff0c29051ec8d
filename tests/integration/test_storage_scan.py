"""Stored bytes that no row names are found, and those that are needed are not touched."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Final

import pytest

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.storage.pieces.cleanup import scan_bytes
from registry.buckets.store import BlobBucketBytes
from registry.gc.orphans import EVERY_SECONDS
from tests.storage_world import StorageWorld

LARGE: Final = b"0123456789" * 10_000


async def leave(storage: StorageWorld, *, committed: bool) -> str:
    """Leave bytes as a process does that dies before it writes their row."""
    orphan = uuid7(storage.clock())
    async with aclosing(await storage.store.stage(orphan, None)) as staged:
        staged.write(memoryview(LARGE))
        if committed:
            staged.commit(None)
        else:
            staged.flush()
    return orphan


async def restart_and_scan(storage: StorageWorld) -> None:
    """Scan as a process does that has just begun: recent bytes of all partitions."""
    assert isinstance(storage.needs.bytes, BlobBucketBytes)
    storage.needs.bytes.orphans.is_first = True
    await scan_bytes(storage.needs)


async def advance_to_turn_of_first(storage: StorageWorld) -> None:
    """Let time pass until a turn looks at the first partition that holds something."""
    partitions = storage.store.partitions()
    held = [place async for place in held_places(storage, partitions)]
    turn = storage.clock() // (EVERY_SECONDS * MICROSECONDS)
    storage.clock.advance((held[0] - turn) % len(partitions) * EVERY_SECONDS)


async def held_places(storage: StorageWorld, partitions: Sequence[str]) -> AsyncIterator[int]:
    for place, partition in enumerate(partitions):
        async for _ in storage.store.list_ids(partition):
            yield place


async def orphans(storage: StorageWorld) -> set[str]:
    return {each.object_id async for each in storage.store.list_orphans()}


@pytest.mark.parametrize("committed", [False, True])
async def test_bytes_without_a_row_are_set_aside_and_deleted_after_a_week(
    storage: StorageWorld, committed: bool
) -> None:
    bucket = await storage.make()
    kept = await storage.put(bucket, "key", LARGE)
    orphan = await leave(storage, committed=committed)
    await restart_and_scan(storage)
    assert await orphans(storage) == set(), "it may still be written"
    storage.clock.advance(600)
    await restart_and_scan(storage)
    assert await orphans(storage) == {orphan}
    storage.clock.advance(7 * 24 * 3600 - 10)
    await restart_and_scan(storage)
    assert await orphans(storage) == {orphan}
    storage.clock.advance(20)
    await restart_and_scan(storage)
    assert await orphans(storage) == set()
    assert list(await storage.files()) == [kept.id]
    assert await storage.get(bucket, "key") == LARGE


async def test_bytes_that_are_being_written_are_not_touched(storage: StorageWorld) -> None:
    orphan = uuid7(storage.clock())
    async with aclosing(await storage.store.stage(orphan, None)) as staged:
        staged.write(memoryview(LARGE))
        storage.clock.advance(600)
        await restart_and_scan(storage)
        assert await orphans(storage) == set()
        staged.commit(None)
        await restart_and_scan(storage)
        assert await orphans(storage) == set()


async def test_nothing_is_set_aside_if_most_seem_to_be_nobodys(
    storage: StorageWorld, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(21):
        await leave(storage, committed=True)
    storage.clock.advance(600)
    await restart_and_scan(storage)
    assert "none is set aside" in caplog.text
    await advance_to_turn_of_first(storage)  # in one partition, few enough to be credible by itself
    await scan_bytes(storage.needs)
    assert await orphans(storage) == set()

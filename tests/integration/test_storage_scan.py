"""Stored bytes that no row names are found, and those that are needed are not touched."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final

import pytest

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Database
from cloudcore.storage.cleanup import scan_bytes
from registry.buckets.store import StoreOfBuckets
from registry.gc.orphans import EVERY_SECONDS
from tests.storage_world import StorageWorld, open_storage_world

LARGE: Final = b"0123456789" * 10_000


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> AsyncIterator[StorageWorld]:
    async with open_storage_world(database, tmp_path / "buckets") as world:
        yield world


async def leave(world: StorageWorld, *, committed: bool) -> str:
    """Leave bytes as a process does that dies before it writes their row."""
    orphan = uuid7(world.clock())
    async with aclosing(await world.store.stage(orphan, None)) as staged:
        staged.write(memoryview(LARGE))
        if committed:
            staged.commit(None)
        else:
            staged.flush()
    return orphan


async def restart_and_scan(world: StorageWorld) -> None:
    """Scan as a process does that has just begun: recent bytes of all partitions."""
    assert isinstance(world.needs.bytes, StoreOfBuckets)
    world.needs.bytes.orphans.is_first = True
    await scan_bytes(world.needs)


async def advance_to_turn_of_first(world: StorageWorld) -> None:
    """Let time pass until a turn looks at the first partition that holds something."""
    partitions = world.store.partitions()
    held = [place async for place in held_places(world, partitions)]
    turn = world.clock() // (EVERY_SECONDS * MICROSECONDS)
    world.clock.advance((held[0] - turn) % len(partitions) * EVERY_SECONDS)


async def held_places(world: StorageWorld, partitions: Sequence[str]) -> AsyncIterator[int]:
    for place, partition in enumerate(partitions):
        async for _ in world.store.list_ids(partition):
            yield place


async def orphans(world: StorageWorld) -> set[str]:
    return {each.object_id async for each in world.store.list_orphans()}


@pytest.mark.parametrize("committed", [False, True])
async def test_bytes_without_a_row_are_set_aside_and_deleted_after_a_week(
    world: StorageWorld, committed: bool
) -> None:
    bucket = await world.make()
    kept = await world.put(bucket, "key", LARGE)
    orphan = await leave(world, committed=committed)
    await restart_and_scan(world)
    assert await orphans(world) == set(), "it may still be written"
    world.clock.advance(600)
    await restart_and_scan(world)
    assert await orphans(world) == {orphan}
    world.clock.advance(7 * 24 * 3600 - 10)
    await restart_and_scan(world)
    assert await orphans(world) == {orphan}
    world.clock.advance(20)
    await restart_and_scan(world)
    assert await orphans(world) == set()
    assert list(await world.files()) == [kept.id]
    assert await world.get(bucket, "key") == LARGE


async def test_bytes_that_are_being_written_are_not_touched(world: StorageWorld) -> None:
    orphan = uuid7(world.clock())
    async with aclosing(await world.store.stage(orphan, None)) as staged:
        staged.write(memoryview(LARGE))
        world.clock.advance(600)
        await restart_and_scan(world)
        assert await orphans(world) == set()
        staged.commit(None)
        await restart_and_scan(world)
        assert await orphans(world) == set()


async def test_nothing_is_set_aside_if_most_seem_to_be_nobodys(
    world: StorageWorld, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(21):
        await leave(world, committed=True)
    world.clock.advance(600)
    await restart_and_scan(world)
    assert "none is set aside" in caplog.text
    await advance_to_turn_of_first(world)  # in one partition, few enough to be credible by itself
    await scan_bytes(world.needs)
    assert await orphans(world) == set()

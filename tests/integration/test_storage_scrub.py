"""Bytes of buckets that no row names are set aside; damaged ones are found, told and not served."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Database
from cloudcore.storage import bucket_rows, object_reads
from cloudcore.storage.bucket import Bucket
from cloudcore.storage.errors import BytesDamaged
from cloudcore.storage.pieces.cleanup import scan_bytes
from cloudcore.storage.routes.buckets import bucket_faults
from registry.blobstore.disk.store import FilesystemStore
from registry.buckets.store import BlobBucketBytes
from registry.gc.object_check import PIECES, DamagedPiece, ObjectCheck
from registry.gc.orphans import EVERY_SECONDS
from registry.gc.scrub import ObjectScrub
from registry.settings.groups import Scrubbing
from tests.databases import on_both_databases
from tests.inprocess import open_registry
from tests.integration.damaged import flip, remove
from tests.integration.stored_forms import push_blob
from tests.kms_world import make_kms_world
from tests.storage_world import ACME, StorageWorld, open_storage_world, storage_world

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
    held = [
        place
        for place, partition in enumerate(partitions)
        async for _ in storage.store.list_ids(partition)
    ]
    turn = storage.clock() // (EVERY_SECONDS * MICROSECONDS)
    storage.clock.advance((held[0] - turn) % len(partitions) * EVERY_SECONDS)


async def orphans(storage: StorageWorld) -> set[str]:
    return {each.object_id async for each in storage.store.list_orphans()}


async def test_bytes_without_a_row_are_set_aside_and_deleted_after_a_week(
    storage: StorageWorld,
) -> None:
    bucket = await storage.make()
    kept = await storage.put(bucket, "key", LARGE)
    left = {await leave(storage, committed=committed) for committed in (False, True)}
    written = uuid7(storage.clock())
    async with aclosing(await storage.store.stage(written, None)) as staged:
        staged.write(memoryview(LARGE))
        await restart_and_scan(storage)
        assert await orphans(storage) == set(), "they may still be written"
        storage.clock.advance(600)
        await restart_and_scan(storage)
        assert await orphans(storage) == left
        staged.commit(None)
        await restart_and_scan(storage)
        assert await orphans(storage) == left
    for seconds, found in ((7 * 24 * 3600 - 10, left), (20, set[str]())):
        storage.clock.advance(seconds)
        await restart_and_scan(storage)
        assert await orphans(storage) == found
    assert set(await storage.files()) == {kept.id, written}
    assert await storage.get(bucket, "key") == LARGE


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


PART: Final = bytes(5 << 20)
FAST: Final = Scrubbing(scrub_every_seconds=30 * 24 * 3600, scrub_rate_bytes=1 << 40)


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> AsyncIterator[StorageWorld]:
    async with open_storage_world(database, tmp_path) as world:
        yield world


def file_of(folder: Path, piece_id: str) -> Path:
    return folder / "objects" / piece_id[-2:] / piece_id


async def scrub(world: StorageWorld) -> list[DamagedPiece]:
    found: list[DamagedPiece] = []
    check = ObjectCheck(world.database, world.store, world.clock, PIECES, found.append)
    await check.run(PIECES.stored_rows.each(world.database))
    return found


async def damaged_keys(world: StorageWorld, bucket: Bucket) -> list[str]:
    found = await world.database.read(bucket_rows.damaged_keys, ACME, bucket.id, 100)
    return [key for key, _ in found]


@on_both_databases
async def test_a_damaged_object_is_told_not_served_and_healed_by_storing_it_again(
    world: StorageWorld, tmp_path: Path
) -> None:
    bucket = await world.make()
    made = await world.put(bucket, "dir/large", LARGE)
    await world.put(bucket, "few", b"few")
    upload = await world.begin(bucket, "parts")
    part = await world.part(bucket, upload, 1, LARGE)
    assert await scrub(world) == []
    flip(file_of(tmp_path, made.id))
    remove(file_of(tmp_path, part.stored.id))
    world.clock.advance(60)
    found = await scrub(world)
    assert sorted((str(each.hit), each.is_new) for each in found) == [
        ("photos/dir/large", True),
        ("upload of photos/parts", True),
    ]
    assert [each.is_new for each in await scrub(world)] == [False, False]
    assert await damaged_keys(world, bucket) == ["dir/large"]
    with pytest.raises(BytesDamaged):
        await world.get(bucket, "dir/large")
    with pytest.raises(BytesDamaged):
        await object_reads.find_object(world.needs, bucket, "dir/large", is_copy=True)
    await object_reads.find_object(world.needs, bucket, "dir/large", is_head=True)
    totals = await world.database.read(PIECES.stored_rows.totals, world.clock() - 1_000_000)
    assert (totals.objects, totals.verified, totals.damaged) == (3, 1, 2)
    await world.put(bucket, "dir/large", LARGE)
    await world.abort(bucket, upload)
    assert await world.get(bucket, "dir/large") == LARGE
    assert await damaged_keys(world, bucket) == []
    assert await scrub(world) == []


async def test_bytes_that_came_back_lose_their_mark(database: Database, tmp_path: Path) -> None:
    async with open_storage_world(database, tmp_path, seals=False) as world:
        bucket = await world.make()
        made = await world.put(bucket, "key", LARGE)
        flip(file_of(tmp_path, made.id))
        assert len(await scrub(world)) == 1
        flip(file_of(tmp_path, made.id))
        assert await scrub(world) == []
        assert await world.get(bucket, "key") == LARGE


async def test_sealed_bytes_without_a_key_are_not_sent_as_they_are_stored(
    world: StorageWorld,
) -> None:
    bucket = await world.make()
    for data in (b"few", LARGE):  # inline, and in the store
        await world.put(bucket, "key", data)
        found = await object_reads.find_object(world.needs, bucket, "key")
        keyless = [each._replace(kms_key_id=None, wrapped=None) for each in found.pieces]
        with pytest.raises(BytesDamaged):
            await object_reads.open_object(world.needs, found._replace(pieces=keyless))


async def test_ranges_outside_of_a_damaged_part_are_served(
    world: StorageWorld, tmp_path: Path
) -> None:
    bucket = await world.make()
    upload = await world.begin(bucket, "key")
    parts = [await world.part(bucket, upload, number, PART) for number in (1, 4)]
    parts.append(await world.part(bucket, upload, 9, b"end"))
    await world.complete(bucket, upload, *parts)
    flip(file_of(tmp_path, parts[0].stored.id))
    assert len(await scrub(world)) == 1
    size = len(PART)
    assert await world.get(bucket, "key", 2 * size - 1) == b"\0end"
    with pytest.raises(BytesDamaged):
        await world.get(bucket, "key", size - 1, size + 1)
    found = await object_reads.find_object(world.needs, bucket, "key", part_number=2)
    assert found.part is not None
    assert (found.start, found.stop, found.part.total, len(found.pieces)) == (size, 2 * size, 3, 1)


async def test_the_scrub_in_the_background_reads_pieces_and_blobs(
    sqlite_database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blobs = FilesystemStore(tmp_path / "blobs")
    with closing(blobs), closing(FilesystemStore(tmp_path / "buckets")) as store:
        async with open_registry(sqlite_database, blobs) as registry:
            kms = await make_kms_world(registry.ctx.database)
            world = storage_world(registry.ctx.database, store, kms, seals=False)
            bucket = await world.make()
            made = await world.put(bucket, "large", LARGE)
            await world.put(bucket, "other", LARGE)
            await push_blob(registry, b"a blob")
            flip(file_of(tmp_path / "buckets", made.id))
            damages: list[bool] = []
            ctx = replace(registry.ctx, on_damage=lambda: damages.append(True))
            scrub = ObjectScrub(ctx, blobs, FAST, store)
            registry.clock.now = max(registry.clock.now, kms.clock.now)
            assert await scrub.turn() == 0
            registry.clock.advance(31 * 24 * 3600)
            assert await scrub.turn() == 3
            assert "of 'photos/large' is damaged" in caplog.text
            assert await damaged_keys(world, bucket) == ["large"]
            assert (await scrub.turn(), damages) == (0, [True])


def test_a_bucket_tells_of_its_damaged_objects_in_one_fault() -> None:
    assert bucket_faults([]) == []
    (fault,) = bucket_faults([(f"key {number}", number) for number in range(12)])
    assert (fault.code, fault.severity, fault.occurrences) == ("BYTES_DAMAGED", "error", 12)
    assert fault.message.startswith("12 objects have damaged bytes")
    assert fault.message.endswith("'key 9' and 2 more")

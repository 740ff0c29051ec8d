"""Requests for objects beside each other: whom they keep waiting, and what they read."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import text

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.events import NO_EVENTS
from cloudcore.storage import bucket_rows, object_reads, object_writes, objects
from tests.databases import on_both_databases
from tests.storage_world import MIB, StorageWorld

_SHARDS: Final = Statement(text("SELECT shard, objects FROM storage_counts ORDER BY shard"))


def _shards(tx: Connection) -> dict[int, int]:
    return {row[0]: row[1] for row in tx.rows(_SHARDS)}


@on_both_databases
async def test_a_batch_of_deletions_is_counted_in_one_row(storage: StorageWorld) -> None:
    # A batch that held the rows of several shards could wait for one that holds them another way.
    bucket, keys = await storage.make(), [f"key {number}" for number in range(40)]
    for key in keys:
        await storage.put(bucket, key, b"four")
    before = await storage.database.read(_shards)
    assert len(before) > 1
    await storage.database.write(
        objects.delete_objects, bucket, keys[:39], storage.clock(), NO_EVENTS
    )
    after = await storage.database.read(_shards)
    assert len([shard for shard in after if after[shard] != before[shard]]) == 1
    assert await storage.held(bucket) == (1, 4, 0)


async def test_a_copy_keeps_no_thread_that_others_use(storage: StorageWorld) -> None:
    bucket = await storage.make()
    await storage.put(bucket, "key", bytes(MIB))
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    found = await object_reads.find_object(storage.needs, bucket, "key", is_copy=True)
    opened = await object_reads.open_object(storage.needs, found)
    began, may_end = threading.Event(), threading.Event()

    def sink(_: memoryview) -> None:
        began.set()
        assert may_end.wait(30)

    copying = asyncio.create_task(
        object_writes.copy_of(opened)(sink, lambda is_complete: is_complete)
    )
    try:
        assert await asyncio.wait_for(asyncio.to_thread(began.wait, 20), 20)
    finally:
        may_end.set()
        assert await copying
        await opened.aclose()


async def test_a_copy_in_slices_has_all_bytes(
    storage: StorageWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_writes, "COPIED_AT_ONCE", 100_000)
    bucket, data = await storage.make(), bytes(range(256)) * 4096
    await storage.put(bucket, "key", data)
    found = await object_reads.find_object(storage.needs, bucket, "key", is_copy=True)
    opened = await object_reads.open_object(storage.needs, found)
    attributes = found.object.attributes
    await object_writes.store_object(
        storage.needs, NO_EVENTS, bucket, "copy", attributes, object_writes.copy_of(opened)
    )
    await opened.aclose()
    assert await storage.get(bucket, "copy") == data


def test_buckets_of_an_account_are_found_without_those_of_others(migrated_file: Path) -> None:
    names = ("account_id", "region", "name", "after", "limit", "bucket_id", "ids")
    with closing(sqlite3.connect(migrated_file)) as raw:
        for statement, index in (
            (bucket_rows._LIST, "ix_storage_buckets_account_id_region_name"),
            (bucket_rows._HELD, "(account_id=? AND bucket_id=?)"),
            (bucket_rows._HELD_EACH, "(account_id=? AND bucket_id=?)"),
        ):
            explained = f"EXPLAIN QUERY PLAN {statement.sqlite}"
            plan = raw.execute(explained, dict.fromkeys(names, "0")).fetchall()
            assert index in " ".join(row[3] for row in plan)

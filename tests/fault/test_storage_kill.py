"""A process killed at each step of storing: the old object or the new one, and never half of it.

What was acknowledged is never lost; bytes that no row names are found by the scan.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from cloudcore.storage.pieces.cleanup import CONDEMNED_FOR, delete_condemned, scan_bytes
from registry.buckets.store import BlobBucketBytes
from tests.databases import opened
from tests.fault.stopping_storer import NEW
from tests.loaded import start_worker
from tests.storage_world import StorageWorld, open_storage_world

OLD: Final = b"old bytes " * 5000
PART: Final = b"a part " * 5000
POSTGRESQL: Final = pytest.mark.postgresql
WAYS: Final = [
    ("sqlite", "put", "after write", False),
    ("sqlite", "put", "after commit", False),
    ("sqlite", "put", "before record_object", False),
    ("sqlite", "put", "after record_object", True),
    ("sqlite", "part", "after commit", False),
    ("sqlite", "complete", "before complete_upload", False),
    ("sqlite", "complete", "after complete_upload", True),
    pytest.param("postgresql", "put", "after commit", False, marks=POSTGRESQL),
    pytest.param("postgresql", "complete", "before complete_upload", False, marks=POSTGRESQL),
]


def kill_at(url: str, folder: Path, step: str, *operation: str) -> None:
    """Let a process of its own do something, and kill it at a step."""
    worker = start_worker("tests.fault.stopping_storer", url, str(folder), step, *operation)
    try:
        assert worker.stdout.readline() == f"{step}\n"
    finally:
        worker.kill()


@pytest.mark.parametrize(("kind", "operation", "step", "is_done"), WAYS)
async def test_nothing_is_half_there_after_a_kill(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kind: str,
    operation: str,
    step: str,
    is_done: bool,
) -> None:
    url: str = request.getfixturevalue(f"{kind}_database")
    folder = tmp_path / "buckets"
    async with opened(url) as database, open_storage_world(database, folder) as world:
        bucket = await world.make()
        await world.put(bucket, "key", OLD)
        upload = await world.begin(bucket, "key")
        await world.part(bucket, upload, 1, PART)
        more = () if operation == "put" else (upload.id,)
        await asyncio.to_thread(kill_at, url, folder, step, operation, *more)
        wanted = OLD
        if operation == "put" and is_done:
            wanted = NEW
        if operation == "complete" and is_done:
            wanted = PART
        assert await world.get(bucket, "key") == wanted
        held = await world.held(bucket)
        assert held[:2] == (1, len(wanted))
        part = NEW if operation == "part" and is_done else PART
        is_open = not (operation == "complete" and is_done)
        assert held.upload_bytes == (len(part) if is_open else 0)
        assert (upload.id in await world.uploads(bucket)) is is_open
        await settle(world)
        assert len(await world.files()) == 1 + is_open, "the bytes of no row are found"
        assert [each async for each in world.store.list_staged()] == []
        if is_open:  # and the upload goes on
            piece = await world.part(bucket, upload, 2, PART)
            await world.complete(bucket, upload, piece)
            wanted = PART
        assert await world.get(bucket, "key") == wanted


async def settle(world: StorageWorld) -> None:
    """Let what is nobody's go: what was replaced, and what was set aside."""
    assert isinstance(world.needs.bytes, BlobBucketBytes)
    world.clock.advance(CONDEMNED_FOR // 1_000_000 + 4000)
    world.needs.bytes.orphans.is_first = True
    await scan_bytes(world.needs)
    await delete_condemned(world.needs)

"""A worker killed between bytes and row: the next one's first look finds what was left."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from registry.blobstore.disk.store import FilesystemStore
from registry.gc.orphans import EVERY_SECONDS, OrphanScan
from registry.oci.digest import digest_of
from tests.fault.collected import push_blob
from tests.fault.killed_uploads import FIRST, SECOND, kill_at
from tests.inprocess import open_registry

PUSH: Final = f"/v2/dev/app/blobs/uploads/?digest={digest_of(SECOND)}"


@pytest.mark.parametrize(
    "kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)]
)
@pytest.mark.parametrize(
    ("step", "is_object"),
    [("after write", False), ("before commit", False), ("before _record_rows", True)],
)
async def test_what_a_killed_push_left_is_found_within_minutes(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, step: str, is_object: bool
) -> None:
    """In whichever shard it lies: a worker's first turn is over all that came of late."""
    database_url: str = request.getfixturevalue(f"{kind}_database")
    folder = tmp_path / "blobs"

    with closing(FilesystemStore(folder)) as store:
        async with open_registry(database_url, store) as registry:
            await push_blob(registry, FIRST)
            await asyncio.to_thread(kill_at, step, database_url, folder, PUSH, "POST")
            listing = store.files.list_objects if is_object else store.files.list_staged
            orphan_scan = OrphanScan(registry.ctx, store)
            before = {each.object_id for each in listing()}
            registry.clock.advance(EVERY_SECONDS + 1)
            assert await orphan_scan.turn() == 1
            (orphan,) = store.files.list_orphans()
            assert orphan.is_object == is_object
            assert {each.object_id for each in listing()} == before - {orphan.object_id}
            assert await orphan_scan.turn() == 0
            await push_blob(registry, SECOND)

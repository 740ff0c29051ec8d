"""A worker killed in the middle of a request: another goes on, and finds what was left."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from cloudcore.clock import uuid7
from cloudcore.jobs.dead_holders import WorkerLocks
from cloudcore.quotas.limits import put_limit
from registry.blobstore.disk.store import FilesystemStore
from registry.gc.orphans import EVERY_SECONDS, OrphanScan
from registry.oci.digest import digest_of
from registry.quotas import BLOB_BYTES
from registry.services.blobs.upload_leases import Leases
from tests.fault.collected import push_blob
from tests.inprocess import open_registry
from tests.loaded import start_worker
from tests.recount import check_counters, object_ids, querying

FIRST: Final = b"acknowledged " * 20
SECOND: Final = b"under way " * 20
PUSH: Final = f"/v2/dev/app/blobs/uploads/?digest={digest_of(SECOND)}"
POSTGRESQL: Final = pytest.mark.postgresql


def kill_at(step: str, url: str, folder: Path, location: str, method: str) -> None:
    """Send `SECOND` through a worker of its own and kill that at a step."""
    words = (url, str(folder), location, method, step)
    worker = start_worker("tests.fault.stopping_worker", *words, stdin=SECOND)
    try:
        assert worker.stdout.readline() == f"{step}\n"
    finally:
        worker.kill()


@pytest.mark.parametrize(
    ("kind", "method", "step", "received"),
    [
        ("sqlite", "PATCH", "before write", len(FIRST)),
        ("sqlite", "PATCH", "after write", len(FIRST)),
        ("sqlite", "PATCH", "before flush", len(FIRST)),
        ("sqlite", "PATCH", "before advance_upload", len(FIRST)),
        ("sqlite", "PATCH", "after advance_upload", len(FIRST + SECOND)),
        ("sqlite", "PUT", "after write", len(FIRST)),
        ("sqlite", "PUT", "before commit", len(FIRST)),
        ("sqlite", "PUT", "before _record_rows", len(FIRST)),
        ("sqlite", "PUT", "after _record_rows", None),
        ("sqlite", "DELETE", "before remove_upload", len(FIRST)),
        ("sqlite", "DELETE", "after remove_upload", None),
        pytest.param(*("postgresql", "PATCH", "before flush", len(FIRST)), marks=POSTGRESQL),
        pytest.param(*("postgresql", "PUT", "before _record_rows", len(FIRST)), marks=POSTGRESQL),
    ],
)
async def test_another_worker_goes_on_after_a_kill(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kind: str,
    method: str,
    step: str,
    received: int | None,
) -> None:
    database_url: str = request.getfixturevalue(f"{kind}_database")
    folder = tmp_path / "blobs"
    whole = FIRST + SECOND
    digest = digest_of(whole)

    async def scenario(store: FilesystemStore) -> None:
        leases = Leases(uuid7(), WorkerLocks(tmp_path / "workers").is_dead)
        async with open_registry(database_url, store, leases=leases) as registry:
            # There is room for these bytes, once.
            limit = await registry.account_id(), BLOB_BYTES.name, len(whole), 1
            await registry.ctx.database.write(put_limit, *limit)
            ask = registry.client.request
            location = (await ask("POST", "/v2/dev/app/blobs/uploads/")).headers["location"]
            assert (await ask("PATCH", location, FIRST)).status == 202
            query = f"?digest={digest}" if method == "PUT" else ""
            await asyncio.to_thread(kill_at, step, database_url, folder, location + query, method)
            answer = await ask("GET", location)
            if received is None:  # the session had ended, and its row knows how
                assert answer.codes == ["BLOB_UPLOAD_UNKNOWN"]
                found = await ask("GET", f"/v2/dev/app/blobs/{digest}")
                assert (found.status == 200) == (method == "PUT")
                return
            assert answer.headers["range"] == f"0-{received - 1}"
            answer = await ask("PUT", f"{location}?digest={digest}", whole[received:])
            assert answer.status == 201
            assert (await ask("GET", f"/v2/dev/app/blobs/{digest}")).body == whole

    with closing(FilesystemStore(folder)) as store:
        await scenario(store)
        with querying(database_url) as query:
            check_counters(query, "dev")
            if (method, received) != ("DELETE", None):
                assert [int(row[0]) for row in query("SELECT bytes FROM stored_bytes")] == [
                    len(whole)
                ]
            assert {one.object_id for one in store.files.list_objects()} == object_ids(query)


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

"""A worker killed in the middle of a request; another goes on with the upload."""

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
from registry.oci.digest import digest_of
from registry.quotas import BLOB_BYTES
from registry.services.blobs.upload_leases import Leases
from tests.fault.killed_uploads import FIRST, SECOND, kill_at
from tests.inprocess import open_registry
from tests.recount import check_counters, object_ids, querying

POSTGRESQL: Final = pytest.mark.postgresql


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

"""A COMMIT whose answer never comes: nobody touches the bytes that its row may own.

PostgreSQL stands behind a proxy that cuts the connection of one COMMIT: after the server has it, or
before, and then passes it on when another worker is already at the same upload.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import psycopg
import pytest

from cloudcore.clock import uuid7
from registry.blobstore.disk.store import FilesystemStore
from registry.gc.fsck import check
from registry.oci.digest import digest_of
from registry.services.blobs.upload_leases import Leases
from tests.commit_proxy import CommitProxy, commit_proxy
from tests.inprocess import Answer, Held, Registry, open_registry
from tests.recount import check_counters, object_ids, querying

FIRST: Final = b"acknowledged " * 50
SECOND: Final = b"of unknown outcome " * 50
THIRD: Final = b"sent again " * 50
WAITING: Final = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"

pytestmark = [pytest.mark.postgresql, pytest.mark.timeout(120)]


@dataclass
class Site:
    """Two workers over one database and one folder; the first one reaches it by the proxy."""

    first: Registry
    second: Registry
    proxy: CommitProxy
    url: str
    store: FilesystemStore
    location: str

    async def lose(
        self, method: str, query: str, fate: Literal["answer lost", "client dies"]
    ) -> Answer:
        """Send `SECOND` to the first worker, whose COMMIT of it meets a fate."""
        body = Held(SECOND[:10], SECOND[10:])
        asked = asyncio.create_task(
            self.first.client.request(method, self.location + query, aiter(body))
        )
        await body.begun.wait()
        self.proxy.arm(fate)
        body.go_on.set()
        await asyncio.to_thread(self.proxy.struck.wait)
        if fate == "client dies":
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            return Answer(0, {}, b"")
        return await asked

    async def wait_for_a_lock(self, waiter: asyncio.Task[Answer]) -> None:
        """Return when the waiter waits for a row that another change has locked."""
        while not await asyncio.to_thread(self._is_anybody_waiting):
            assert not waiter.done(), await waiter

    def _is_anybody_waiting(self) -> bool:
        with psycopg.connect(self.url) as raw:
            found = raw.execute(WAITING).fetchone()
            return found is not None and found[0] > 0

    async def finish(self, whole: bytes) -> None:
        """Finish the upload in the second worker and check all there is."""
        digest = digest_of(whole)
        target = f"{self.location}?digest={digest}"
        assert (await self.second.client.request("PUT", target)).status == 201
        await self.check(digest, whole)

    async def check(self, digest: str, whole: bytes) -> None:
        """Check that the blob is there, and that the rows and the files agree."""
        found = await self.second.client.request("GET", f"/v2/dev/app/blobs/{digest}")
        assert found.body == whole
        ctx = self.second.ctx
        report = await check(ctx.database, self.store, lambda _: None, clock=ctx.clock)
        assert report.violations == []
        with querying(self.url) as query:
            check_counters(query, "dev")
            objects = {one.object_id async for one in self.store.list_objects()}
            assert objects == object_ids(query)


@asynccontextmanager
async def two_workers(url: str, folder: Path) -> AsyncIterator[Site]:
    """Open a site with an upload of which `FIRST` is acknowledged."""
    with commit_proxy(url) as proxy, closing(FilesystemStore(folder)) as store:
        leases = Leases(uuid7(), lambda _: True)
        async with (
            open_registry(proxy.url, store) as first,
            open_registry(url, store, leases=leases) as second,
        ):
            started = await second.client.request("POST", "/v2/dev/app/blobs/uploads/")
            location = started.headers["location"]
            assert (await second.client.request("PATCH", location, FIRST)).status == 202
            yield Site(first, second, proxy, url, store, location)


async def test_a_chunk_counts_though_the_answer_to_its_commit_is_lost(
    postgresql_database: str, tmp_path: Path
) -> None:
    async with two_workers(postgresql_database, tmp_path) as site:
        answer = await site.lose("PATCH", "", "answer lost")
        assert answer.status == 202
        assert answer.headers["range"] == f"0-{len(FIRST + SECOND) - 1}"
        await site.finish(FIRST + SECOND)


async def test_a_blob_is_there_though_the_answer_to_its_commit_is_lost(
    postgresql_database: str, tmp_path: Path
) -> None:
    digest = digest_of(FIRST + SECOND)
    async with two_workers(postgresql_database, tmp_path) as site:
        answer = await site.lose("PUT", f"?digest={digest}", "answer lost")
        assert answer.status == 201
        await site.check(digest, FIRST + SECOND)


@pytest.mark.parametrize("is_kept", [True, False])
async def test_the_next_writer_waits_until_a_commit_is_decided(
    postgresql_database: str, tmp_path: Path, *, is_kept: bool
) -> None:
    async with two_workers(postgresql_database, tmp_path) as site:
        await site.lose("PATCH", "", "client dies")
        place = {"content-range": f"{len(FIRST)}-{len(FIRST + THIRD) - 1}"}
        retry = asyncio.create_task(
            site.second.client.request("PATCH", site.location, THIRD, place)
        )
        await site.wait_for_a_lock(retry)
        if is_kept:
            site.proxy.let_go()
            answer = await retry
            assert answer.status == 416
            assert answer.headers["range"] == f"0-{len(FIRST + SECOND) - 1}"
            await site.finish(FIRST + SECOND)
        else:
            site.proxy.forget()
            assert (await retry).status == 202
            await site.finish(FIRST + THIRD)


@pytest.mark.parametrize("is_kept", [True, False])
async def test_the_bytes_of_a_blob_stay_while_its_commit_is_undecided(
    postgresql_database: str, tmp_path: Path, *, is_kept: bool
) -> None:
    whole = FIRST + SECOND
    digest = digest_of(whole)
    async with two_workers(postgresql_database, tmp_path) as site:
        await site.lose("PUT", f"?digest={digest}", "client dies")
        target = f"{site.location}?digest={digest}"
        retry = asyncio.create_task(site.second.client.request("PUT", target, SECOND))
        await site.wait_for_a_lock(retry)
        if is_kept:
            site.proxy.let_go()
            assert (await retry).codes == ["BLOB_UPLOAD_UNKNOWN"]
        else:
            site.proxy.forget()
            assert (await retry).status == 201
        await site.check(digest, whole)


@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_push_in_one_request_is_recorded_again(
    postgresql_database: str, tmp_path: Path, *, is_kept: bool
) -> None:
    """The repository links these bytes already, but only this push verifies their sha512."""
    digests = digest_of(SECOND), digest_of(SECOND, "sha512")
    path = "/v2/dev/app/blobs/uploads/?digest="
    async with two_workers(postgresql_database, tmp_path) as site:
        pushed = await site.second.client.request("POST", path + digests[0], SECOND)
        assert pushed.status == 201
        body = Held(SECOND)
        asked = asyncio.create_task(
            site.first.client.request("POST", path + digests[1], aiter(body))
        )
        await body.begun.wait()
        site.proxy.arm("delayed")
        body.go_on.set()
        await site.wait_for_a_lock(asked)
        if is_kept:
            site.proxy.let_go()
        else:
            site.proxy.forget()
        assert (await asked).status == 201
        await site.check(digests[1], SECOND)


async def test_a_worker_that_lives_settles_the_outcome_itself(
    postgresql_database: str, tmp_path: Path
) -> None:
    async with two_workers(postgresql_database, tmp_path) as site:
        body = Held(SECOND)
        asked = asyncio.create_task(site.first.client.request("PATCH", site.location, aiter(body)))
        await body.begun.wait()
        site.proxy.arm("delayed")
        body.go_on.set()
        await site.wait_for_a_lock(asked)
        site.proxy.let_go()
        assert (await asked).status == 202
        await site.finish(FIRST + SECOND)

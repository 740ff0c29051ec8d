"""A change of one statement whose answer never comes: the client hears what became of it.

Such a statement is its own transaction on PostgreSQL, without BEGIN and COMMIT. A proxy cuts its
connection: after the server has run it, or before; then the server never gets it, or too late.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Final, Literal

import pytest

from registry.gc.fsck import check
from registry.oci.digest import digest_of
from registry.settings.groups import Limits
from tests.commit_proxy import CommitProxy, Fate, commit_proxy
from tests.inprocess import Answer
from tests.keyed_registry import KeyedRegistry, open_keyed_registry
from tests.memory_store import MemoryStore
from tests.recount import check_counters, querying

DATA: Final = os.urandom(600)
DIGEST: Final = digest_of(DATA)
EARLIER: Final = b"pushed before, so that the place is known"
UPLOADS: Final = "/v2/dev/app/blobs/uploads/"
PUSH: Final = b"target AS"
"""In the statement of `metadata.blobs.new_blobs` alone."""
BEGIN: Final = b"INSERT INTO uploads"
PATIENCE: Final = 20.0

Loss = Literal["after", "before", "late"]
"""Whether the server had run the statement, never got it, or got it when all was over."""
LOSSES: Final = ("after", "before", "late")
FATES: Final[dict[Loss, Fate]] = {"after": "answer lost", "before": "delayed", "late": "delayed"}

pytestmark = [pytest.mark.postgresql, pytest.mark.timeout(120)]


@dataclass
class Site:
    """A registry that seals and reaches its database by a proxy, and knows its place."""

    keyed: KeyedRegistry
    proxy: CommitProxy
    url: str
    plane: Literal["sealed", "plain"] = "sealed"

    async def request(self, method: str, target: str, body: bytes = b"") -> Answer:
        """Send a request that says how long its body is."""
        client = self.keyed.client if self.plane == "sealed" else self.keyed.registry.client
        length = {"content-length": str(len(body))}
        return await client.request(method, target, body, length)

    def arm(self, *losses: Loss, text: bytes) -> None:
        """Lose the next statements with a text in them."""
        self.proxy.arm(*(FATES[loss] for loss in losses), text=text)

    async def settle(self, loss: Loss) -> None:
        """Check that all that was armed was lost, and let the server have what comes late."""
        assert not self.proxy.is_armed
        if loss == "before":
            self.proxy.forget()
        if loss == "late":
            self.proxy.let_go()
            assert await asyncio.to_thread(self.proxy.answered.wait, PATIENCE)

    async def session(self, *, has_row: bool) -> str:
        """Open a session, perhaps with all of `DATA`; return its location."""
        location = (await self.request("POST", UPLOADS)).headers["location"]
        if has_row:
            assert (await self.request("PATCH", location, DATA)).status == 202
        return location

    async def check(self) -> None:
        """Check that the blob is there once, and that the rows agree with each other."""
        found = await self.request("GET", f"/v2/dev/app/blobs/{DIGEST}")
        assert (found.status, found.body) == (200, DATA)
        ctx = self.keyed.ctx
        report = await check(ctx.database, self.keyed.store, lambda _: None, clock=ctx.clock)
        assert report.violations == []
        sealed = 2 if self.plane == "sealed" else 0
        with querying(self.url) as query:
            check_counters(query, "dev")
            for table, rows in (
                *(("blob_objects", 2), ("repository_blobs", 2), ("inline_bytes", 2)),
                *(("blob_object_keys", sealed), ("uploads", 0)),
            ):
                assert query(f"SELECT count(*) FROM {table}") == [(rows,)], table


@pytest.fixture
def proxy(postgresql_database: str) -> Iterator[CommitProxy]:
    with commit_proxy(postgresql_database) as proxy:
        yield proxy


@pytest.fixture(params=["sealed", "plain"])
async def site(
    request: pytest.FixtureRequest, proxy: CommitProxy, postgresql_database: str
) -> AsyncIterator[Site]:
    limits = Limits(inline_max_bytes=1000)
    async with open_keyed_registry(proxy.url, MemoryStore(), limits) as keyed:
        site = Site(keyed, proxy, postgresql_database, request.param)
        target = f"{UPLOADS}?digest={digest_of(EARLIER)}"
        assert (await site.request("POST", target, EARLIER)).status == 201
        yield site


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_push_in_one_request_is_there(site: Site, loss: Loss) -> None:
    site.arm(loss, text=PUSH)
    target = f"{UPLOADS}?digest={DIGEST}"
    assert (await site.request("POST", target, DATA)).status == 201
    await site.settle(loss)
    await site.check()


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_push_that_ends_a_session_without_a_row_is_there(site: Site, loss: Loss) -> None:
    location = await site.session(has_row=False)
    site.arm(loss, text=PUSH)
    assert (await site.request("PUT", f"{location}?digest={DIGEST}", DATA)).status == 201
    await site.settle(loss)
    assert (await site.request("GET", location)).codes == ["BLOB_UPLOAD_UNKNOWN"]
    await site.check()


# Without a seal, a session with a row takes more than one statement to end.
@pytest.mark.parametrize("site", ["sealed"], indirect=True)
@pytest.mark.parametrize("loss", LOSSES)
async def test_a_push_that_ends_a_session_with_a_row_is_there(site: Site, loss: Loss) -> None:
    location = await site.session(has_row=True)
    site.arm(loss, text=PUSH)
    assert (await site.request("PUT", f"{location}?digest={DIGEST}")).status == 201
    await site.settle(loss)
    assert (await site.request("GET", location)).codes == ["BLOB_UPLOAD_UNKNOWN"]
    await site.check()


@pytest.mark.parametrize("site", ["sealed"], indirect=True)
async def test_a_push_that_is_kept_is_there_though_two_answers_are_lost(site: Site) -> None:
    location = await site.session(has_row=True)
    site.arm("after", "after", text=PUSH)
    assert (await site.request("PUT", f"{location}?digest={DIGEST}")).status == 201
    await site.settle("after")
    await site.check()


@pytest.mark.parametrize(
    ("site", "has_row"),
    [("sealed", True), ("sealed", False), ("plain", False)],
    indirect=["site"],
)
async def test_a_push_that_is_lost_twice_is_refused_and_can_be_repeated(
    site: Site, *, has_row: bool
) -> None:
    location = await site.session(has_row=has_row)
    site.arm("before", "before", text=PUSH)
    target, body = f"{location}?digest={DIGEST}", b"" if has_row else DATA
    refused = await site.request("PUT", target, body)
    assert (refused.status, refused.codes) == (503, ["UNKNOWN"])
    assert "retry-after" in refused.headers
    await site.settle("before")
    there = await site.request("GET", location)
    assert (there.status, there.headers["range"]) == (204, "0-599" if has_row else "0-0")
    assert (await site.request("PUT", target, body)).status == 201
    await site.check()


@pytest.mark.parametrize("loss", LOSSES)
async def test_the_first_bytes_of_a_session_count_once(site: Site, loss: Loss) -> None:
    location = await site.session(has_row=False)
    site.arm(loss, text=BEGIN)
    kept = await site.request("PATCH", location, DATA)
    assert (kept.status, kept.headers["range"]) == (202, "0-599")
    if loss != "late":
        await site.settle(loss)
    assert (await site.request("PUT", f"{location}?digest={DIGEST}")).status == 201
    if loss == "late":
        await site.settle(loss)
    await site.check()

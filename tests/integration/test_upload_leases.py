"""The lease on an upload: who may append, for how long, and who goes on after."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from cloudcore.db.base import Connection
from cloudcore.errors import Unavailable
from registry.blobstore.disk.store import FilesystemStore
from registry.distribution.app import DataPlane
from registry.distribution.auth import OpenAccess
from registry.gc.orphans import STAGED, set_orphans_aside
from registry.gc.purge import discard_expired_uploads
from registry.oci.digest import digest_of
from tests.fault.seams import SteppingDatabase, Steps
from tests.inprocess import Answer, Client, Held, ManualClock, Registry, open_registry
from tests.integration.counting import open_counting

UPLOADS: Final = "/v2/dev/app/blobs/uploads/"
ONE: Final = b"one " * 100
TWO: Final = b"two " * 100
THREE: Final = b"three " * 100


class Refusing(Steps):
    """Refuses one step, or cancels the request at one, by its name, once."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = ""
        self.cancelled = ""

    def take(self, step: str) -> None:
        if step == self.refused:
            self.refused = ""
            raise Unavailable("refused")
        if step == self.cancelled:
            self.cancelled = ""
            raise asyncio.CancelledError


@dataclass
class Nodes:
    """Two nodes, neither of which can tell whether the other lives, and an upload."""

    first: Registry
    second: Registry
    clock: ManualClock
    store: FilesystemStore
    steps: Refusing
    """Of the first one's database."""
    location: str

    async def begin(self, registry: Registry) -> tuple[Held, asyncio.Task[Answer]]:
        """Let a node receive the first half of a chunk."""
        body = Held(TWO[:200], TWO[200:])
        asked = asyncio.create_task(registry.client.request("PATCH", self.location, aiter(body)))
        await body.begun.wait()
        return body, asked

    async def append(self, registry: Registry, data: bytes) -> Answer:
        return await registry.client.request("PATCH", self.location, data)

    async def renew(self) -> None:
        """Let the first node renew its leases."""
        await self.first.ctx.leases.renew(self.first.ctx.database, self.clock)

    async def check_release(self) -> None:
        """Check that the lease is released with the next renewal, and that the other goes on."""
        assert (await self.append(self.second, THREE)).status == 409
        await self.renew()
        assert (await self.append(self.second, THREE)).status == 202
        await self.finish(ONE + THREE)

    async def finish(self, whole: bytes) -> None:
        digest = digest_of(whole)
        answer = await self.second.client.request("PUT", f"{self.location}?digest={digest}")
        assert answer.status == 201
        found = await self.first.client.request("GET", f"/v2/dev/app/blobs/{digest}")
        assert found.body == whole


@pytest.fixture
async def nodes(sqlite_database: str, tmp_path: Path) -> AsyncIterator[Nodes]:
    clock, steps = ManualClock(), Refusing()
    with closing(FilesystemStore(tmp_path / "blobs")) as store:
        async with (
            open_registry(
                sqlite_database,
                store,
                clock=clock,
                around=lambda database: SteppingDatabase(database, steps),
            ) as first,
            open_registry(sqlite_database, store, clock=clock) as second,
        ):
            location = (await first.client.request("POST", UPLOADS)).headers["location"]
            assert (await first.client.request("PATCH", location, ONE)).status == 202
            yield Nodes(first, second, clock, store, steps, location)


@pytest.mark.parametrize("gives_up", [False, True])
async def test_another_node_goes_on_in_a_copy_once_the_lease_has_run_out(
    nodes: Nodes, gives_up: bool
) -> None:
    """The first one may write still: its bytes are nobody else's until a copy is recorded."""
    (first_stage,) = [each.object_id async for each in nodes.store.list_staged()]
    late, asked = await nodes.begin(nodes.first)
    unread = Held(THREE)
    answer = await nodes.second.client.request("PATCH", nodes.location, aiter(unread))
    assert (answer.status, answer.headers["retry-after"]) == (409, "1")
    assert not unread.begun.is_set(), "its body was read"
    nodes.clock.advance(21)
    if gives_up:  # a holder in between
        place = {"content-range": "7-9"}
        answer = await nodes.second.client.request("PATCH", nodes.location, b"out", place)
        assert answer.status == 416
    assert (await nodes.append(nodes.second, THREE)).status == 202
    late.go_on.set()
    refused = await asked
    assert (refused.status, refused.codes) == (409, ["BLOB_UPLOAD_INVALID"])
    session = await nodes.first.client.request("GET", nodes.location)
    assert session.headers["range"] == f"0-{len(ONE + THREE) - 1}"
    nodes.clock.advance(600)
    assert await set_orphans_aside(nodes.second.ctx, nodes.store, STAGED) == 1
    (orphan,) = [each async for each in nodes.store.list_orphans()]
    assert gives_up or orphan.object_id == first_stage
    await nodes.finish(ONE + THREE)
    assert [each async for each in nodes.store.list_staged()] == []


async def test_a_holder_that_lives_renews_its_lease(nodes: Nodes) -> None:
    body, asked = await nodes.begin(nodes.first)
    for _ in range(4):
        nodes.clock.advance(15)
        await nodes.renew()
        assert (await nodes.append(nodes.second, THREE)).status == 409
    body.go_on.set()
    assert (await asked).status == 202
    await nodes.finish(ONE + TWO)


@pytest.mark.parametrize("how", ["out of order", "wrong length", "cancelled"])
async def test_a_request_that_fails_releases_the_lease(nodes: Nodes, how: str) -> None:
    if how == "cancelled":
        _, asked = await nodes.begin(nodes.first)
        asked.cancel()
        with suppress(asyncio.CancelledError):
            await asked
    else:
        first = 7 if how == "out of order" else len(ONE)
        place = {"content-range": f"{first}-{first + 9}"}
        body = TWO[:10] if how == "out of order" else [TWO[:9]]
        headers = place if how == "out of order" else place | {"transfer-encoding": "chunked"}
        answer = await nodes.first.client.request("PATCH", nodes.location, body, headers)
        assert answer.status in (400, 416)
    assert (await nodes.append(nodes.second, THREE)).status == 202
    await nodes.finish(ONE + THREE)


async def test_a_lease_that_could_not_be_released_is_released_soon(nodes: Nodes) -> None:
    nodes.steps.refused = "before advance_upload"
    assert (await nodes.append(nodes.first, TWO)).status == 503
    await nodes.check_release()


async def test_a_process_takes_up_what_a_request_of_its_own_left(nodes: Nodes) -> None:
    nodes.steps.refused = "before advance_upload"
    assert (await nodes.append(nodes.first, TWO)).status == 503
    assert (await nodes.append(nodes.first, THREE)).status == 202
    await nodes.finish(ONE + THREE)


@pytest.mark.parametrize("change", ["_take_free", "_take"])
async def test_a_lease_that_was_taken_for_a_cancelled_request_is_released_soon(
    nodes: Nodes, change: str
) -> None:
    if change == "_take":
        nodes.steps.refused = "before advance_upload"
        assert (await nodes.append(nodes.first, TWO)).status == 503
    nodes.steps.cancelled = f"after {change}"
    with pytest.raises(asyncio.CancelledError):
        await nodes.append(nodes.first, TWO)
    assert (await nodes.append(nodes.second, THREE)).status == 409
    nodes.steps.refused = "before _release_unclaimed"  # the database is away for a moment
    await nodes.first.ctx.leases.renew(nodes.first.ctx.database, nodes.clock)
    assert not nodes.steps.refused
    await nodes.check_release()


async def test_a_lease_of_a_later_request_is_not_released_for_a_cancelled_one(
    nodes: Nodes,
) -> None:
    nodes.steps.cancelled = "after _take_free"
    with pytest.raises(asyncio.CancelledError):
        await nodes.append(nodes.first, TWO)
    body, later = await nodes.begin(nodes.first)
    for _ in range(2):
        await nodes.renew()
        assert (await nodes.append(nodes.second, THREE)).status == 409
    body.go_on.set()
    assert (await later).status == 202
    await nodes.finish(ONE + TWO)


async def test_a_request_that_is_cancelled_before_its_change_runs_takes_no_lease(
    nodes: Nodes,
) -> None:
    database, go_on = nodes.first.ctx.database, threading.Event()
    occupying = asyncio.create_task(database.write(_wait_for, go_on))
    asked = asyncio.create_task(nodes.append(nodes.first, TWO))
    await asyncio.sleep(0)  # both have handed their changes to the writer
    assert nodes.first.ctx.leases.is_writing(nodes.location.rpartition("/")[2])
    asked.cancel()
    with suppress(asyncio.CancelledError):
        await asked
    go_on.set()
    await occupying
    assert (await nodes.append(nodes.second, THREE)).status == 202
    await nodes.finish(ONE + THREE)


def _wait_for(_: Connection, event: threading.Event) -> None:
    assert event.wait(30)


async def test_a_lost_holder_does_not_outlive_the_session(nodes: Nodes) -> None:
    late, asked = await nodes.begin(nodes.first)
    nodes.clock.advance(25 * 3600)
    assert await discard_expired_uploads(nodes.second.ctx) == 1
    late.go_on.set()
    assert (await asked).codes == ["BLOB_UPLOAD_UNKNOWN"]


async def test_a_second_holder_cuts_off_what_the_first_one_left(nodes: Nodes) -> None:
    ask = nodes.first.client.request
    nodes.location = (await ask("POST", UPLOADS)).headers["location"]
    wrong = {"content-range": "0-9", "transfer-encoding": "chunked"}
    assert (await ask("PATCH", nodes.location, [TWO], wrong)).status == 400
    assert (await nodes.append(nodes.second, ONE)).status == 202
    await nodes.finish(ONE)


async def test_bytes_that_are_newer_than_their_session_are_busy_once(nodes: Nodes) -> None:
    ask, ctx = nodes.first.client.request, nodes.first.ctx
    nodes.location = (await ask("POST", UPLOADS)).headers["location"]
    id_of_the_bytes = "0197742a-0000-7000-8000-000000000000"
    nodes.first = replace(nodes.first, ctx=replace(ctx, new_id=lambda: id_of_the_bytes))
    nodes.first = replace(nodes.first, client=Client(DataPlane(nodes.first.ctx, OpenAccess("dev"))))
    async with aclosing(await nodes.store.stage(id_of_the_bytes, None)) as staged:
        staged.write(memoryview(THREE))
    assert [(await nodes.append(nodes.first, ONE)).status for _ in range(2)] == [409, 202]
    await nodes.finish(ONE)


async def test_a_staged_session_costs_changes_and_a_single_push_one(
    sqlite_database: str,
) -> None:
    async with open_counting(sqlite_database) as (registry, counted):
        ask = registry.client.request
        assert (await ask("POST", f"{UPLOADS}?digest={digest_of(ONE)}", ONE)).status == 201
        location = (await ask("POST", UPLOADS)).headers["location"]
        digest = digest_of(TWO)
        for method, target, body, statements, changes in (
            ("POST", f"{UPLOADS}?digest={digest_of(THREE)}", THREE, 4, 1),
            ("POST", UPLOADS, b"", 1, 0),
            ("PATCH", location, TWO, 5, 2),
            ("PUT", f"{location}?digest={digest}", b"", 7, 2),
            ("PATCH", location, TWO, 2, 0),  # 404, or 405 where the cache has the name
        ):
            counted.start()
            await ask(method, target, body)
            assert (len(counted.seen), counted.changes) == (statements, changes), (method, target)

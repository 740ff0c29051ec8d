"""fsck beside a registry that pushes: bytes of an upload in progress are no orphans."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

import pytest

from cloudcore.clock import uuid7
from cloudcore.db.base import Database
from registry.blobstore.disk.store import FilesystemStore
from registry.gc.fsck import check
from registry.oci.digest import digest_of
from tests.dying import Kind, PassingDatabase
from tests.inprocess import Answer, Registry, open_registry

DATA: Final = b"bytes of a push that takes its time"
UPLOADS: Final = "/v2/dev/app/blobs/uploads/"
SETTLED: Final = 301
"""Seconds after which fsck asks who holds bytes without a row."""

Meanwhile = Callable[[], Awaitable[None]]


class PausingDatabase(PassingDatabase):
    """A database beside which things happen at the first call of a query or change, by name."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.after_query: dict[str, Meanwhile] = {}
        self.before_change: dict[str, Meanwhile] = {}

    async def before(self, kind: Kind, call: Callable[..., object]) -> None:
        if kind == "write":
            await _happen(self.before_change, call.__name__)

    async def after(self, kind: Kind, call: Callable[..., object], _result: object) -> None:
        if kind == "read":
            await _happen(self.after_query, call.__name__)


async def _happen(things: dict[str, Meanwhile], name: str) -> None:
    meanwhile = things.pop(name, None)
    if meanwhile is not None:
        await meanwhile()


@dataclass
class Site:
    """A registry, the database it shares with fsck, and its store."""

    registry: Registry
    database: PausingDatabase
    store: FilesystemStore
    is_waiting: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def findings(self) -> list[str]:
        """Run fsck; return its findings."""
        clock = self.registry.clock
        report = await check(self.database, self.store, lambda _: None, clock=clock)
        return [str(finding) for finding in (*report.violations, *report.orphans)]

    async def push(self) -> Answer:
        """Push `DATA` in one request."""
        target = f"{UPLOADS}?digest={digest_of(DATA)}"
        return await self.registry.client.request("POST", target, DATA)

    async def push_until_its_rows(self) -> asyncio.Task[Answer]:
        """Begin a push; return when its bytes are stored, and its rows wait for `go_on`."""

        async def wait() -> None:
            self.is_waiting.set()
            await self.go_on.wait()

        self.database.before_change["_record_rows"] = wait
        pushing = asyncio.create_task(self.push())
        await self.is_waiting.wait()
        self.registry.clock.advance(SETTLED)
        return pushing

    def leave(self, *, is_object: bool) -> None:
        """Leave bytes without a row, as a process that died."""
        staged = self.store.files.stage(uuid7(self.registry.clock()))
        with closing(staged):
            staged.write(memoryview(DATA))
            if is_object:
                staged.commit(digest_of(DATA))


@pytest.fixture
async def site(sqlite_database: str, store: FilesystemStore) -> AsyncIterator[Site]:
    """Return a registry over files."""
    databases: list[PausingDatabase] = []

    def around(database: Database) -> Database:
        databases.append(PausingDatabase(database))
        return databases[-1]

    async with open_registry(sqlite_database, store, around=around) as registry:
        yield Site(registry, databases[-1], store)


async def test_stored_bytes_wait_for_their_rows(site: Site) -> None:
    pushing = await site.push_until_its_rows()
    assert await site.findings() == []
    site.go_on.set()
    assert (await pushing).status == 201
    assert await site.findings() == []


async def test_rows_that_are_written_during_the_look_count(site: Site) -> None:
    pushing = await site.push_until_its_rows()

    async def finish() -> None:
        site.go_on.set()
        assert (await pushing).status == 201

    site.database.after_query["owned"] = finish
    assert await site.findings() == []
    assert pushing.done()


async def test_a_session_that_begins_during_fsck_counts(site: Site) -> None:
    async def begin() -> None:
        client = site.registry.client
        location = (await client.request("POST", UPLOADS)).headers["location"]
        assert (await client.request("PATCH", location, DATA)).status == 202
        site.registry.clock.advance(SETTLED)

    site.database.after_query["sessions"] = begin
    assert await site.findings() == []
    assert not site.database.after_query


async def test_bytes_that_nobody_holds_are_told_once_they_have_settled(site: Site) -> None:
    for is_object in (True, False):
        site.leave(is_object=is_object)
    assert await site.findings() == []
    site.registry.clock.advance(SETTLED)
    staged, stored = await site.findings()
    assert staged.endswith(f"{len(DATA)} bytes of no session")
    assert stored.endswith(f"{len(DATA)} bytes of no blob")

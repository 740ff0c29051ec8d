"""An upload session on PostgreSQL whose repository is deleted while it ends."""

from __future__ import annotations

import asyncio
import threading
from typing import Final

import pytest

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from registry.gc.fsck import check
from registry.metadata.repositories.deleted import list_deleted_repositories, undelete_repository
from registry.metadata.repositories.details import mark_deleted
from registry.metadata.repositories.repository import find_account, find_repository
from registry.metadata.tags.deleted import SoftDeletion
from registry.oci.digest import digest_of
from tests.inprocess import IN_FILES, Held, Registry, open_registry
from tests.memory_store import MemoryStore
from tests.recount import check_counters, querying

pytestmark = [pytest.mark.postgresql, pytest.mark.timeout(60)]

DATA: Final = b"a layer. " * 100
HALF: Final = len(DATA) // 2
DIGEST: Final = digest_of(DATA)
UPLOADS: Final = "/v2/dev/app/blobs/uploads/"


async def test_a_session_that_its_repository_leaves_keeps_its_bytes(
    postgresql_database: str,
) -> None:
    """The deletion ends all sessions that it sees; this one begins before it is committed."""
    store = MemoryStore()
    async with open_registry(postgresql_database, store, limits=IN_FILES) as registry:
        request = registry.client.request
        earlier = b"makes the repository"
        made = await request("POST", f"{UPLOADS}?digest={digest_of(earlier)}", earlier)
        assert made.status == 201
        is_marked, may_commit = threading.Event(), threading.Event()
        write = registry.ctx.database.write
        deleting = asyncio.create_task(write(_delete, registry, is_marked, may_commit))
        try:
            assert await asyncio.to_thread(is_marked.wait, 30)
            location = (await request("POST", UPLOADS)).headers["location"]
            assert (await request("PATCH", location, DATA[:HALF])).status == 202
            target, last = f"{location}?digest={DIGEST}", Held(DATA[HALF:-1], DATA[-1:])
            ending = asyncio.create_task(request("PUT", target, last))
            await last.begun.wait()
        finally:
            may_commit.set()
        await deleting
        last.go_on.set()
        refused = await ending
        assert (refused.status, refused.codes) == (404, ["NAME_UNKNOWN"])
        await _check(registry, store)
        await write(_restore, registry)
        assert (await request("PUT", target, DATA[HALF:])).status == 201
        assert (await request("GET", f"/v2/dev/app/blobs/{DIGEST}")).body == DATA
        await _check(registry, store)
        with querying(postgresql_database) as query:
            check_counters(query, "dev")


def _delete(
    tx: Connection, registry: Registry, is_marked: threading.Event, may_commit: threading.Event
) -> None:
    repository = find_repository(tx, "dev", "app")
    assert repository is not None
    now = registry.clock()
    mark_deleted(tx, repository, SoftDeletion("", None, now, now + 3600 * MICROSECONDS))
    is_marked.set()
    assert may_commit.wait(30)


def _restore(tx: Connection, registry: Registry) -> None:
    account = find_account(tx, "dev")
    assert account is not None
    now = registry.clock()
    (deleted,) = list_deleted_repositories(tx, account.id, now, None, 2)
    assert undelete_repository(tx, deleted, now)


async def _check(registry: Registry, store: MemoryStore) -> None:
    report = await check(registry.ctx.database, store, lambda _: None, clock=registry.clock)
    assert report.violations == []

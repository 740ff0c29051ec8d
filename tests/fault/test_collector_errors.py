"""A store that refuses to delete all or one, and readers of what goes: all stays consistent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

import pytest

from cloudcore.clock import uuid7
from cloudcore.db.base import ConstraintViolated
from cloudcore.errors import Unavailable
from cloudcore.jobs.runs import find_run
from cloudcore.threads import Threads
from registry.blobstore.base import Orphan
from registry.blobstore.disk.files import DiskFiles
from registry.blobstore.store import BlobStore
from registry.errors import StoreUnavailable
from registry.gc.collection import collection_kind
from registry.gc.orphans import blobs_of
from registry.gc.purge import discard_expired_uploads
from registry.oci.digest import digest_of
from registry.services.collector_runs import KIND, start_collection
from tests.collecting import at_once, collect
from tests.databases import on_both_databases
from tests.dying import Kind, PassingDatabase
from tests.fault.collected import (
    GARBAGE,
    MARK,
    SWEEP,
    check_clean,
    check_needed,
    clean,
    fill,
    push_blob,
    run_phases,
)
from tests.inprocess import Registry, open_registry
from tests.jobs import run_due
from tests.memory_store import MemoryFiles
from tests.memory_store import at_once as called_at_once

DATA = bytes(range(256)) * 4096


class Refusing(DiskFiles):
    """Deletes nothing for a while."""

    refusals = 0
    deleted = 0
    bad: frozenset[str] = frozenset()
    """Ids of files that can never be deleted."""

    def delete(self, object_id: str) -> None:
        """Refuse, or delete."""
        if self.refusals or object_id in self.bad:
            self.refusals = max(0, self.refusals - 1)
            raise StoreUnavailable("Input/output error")
        super().delete(object_id)
        self.deleted += 1


class RefusingStore(BlobStore):
    """A store of such files."""

    def __init__(self, folder: Path) -> None:
        self.files: Final = Refusing(folder)
        super().__init__(self.files, Threads("files"), look_seconds=0.1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RefusingStore]:
    """Return a store that may refuse."""
    store = RefusingStore(tmp_path / "blobs")
    with closing(store.files):
        yield store


@pytest.fixture
async def registry(metadata_url: str, store: RefusingStore) -> AsyncIterator[Registry]:
    """Return a registry over the store."""
    async with open_registry(metadata_url, store) as registry:
        yield registry


@on_both_databases
async def test_a_later_run_deletes_what_was_refused(
    registry: Registry, store: RefusingStore
) -> None:
    await fill(registry, store)
    store.files.deleted = 0  # but for duplicates
    store.files.refusals = 100
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await collect(at_once(registry.ctx), store, await registry.account_id())
        await check_needed(registry, store)
    assert store.files.deleted == 0
    store.files.refusals = 0
    await clean(registry, store)
    await check_clean(registry, store)


@on_both_databases
async def test_a_store_that_goes_on_refusing_fails_the_run(
    registry: Registry, store: RefusingStore
) -> None:
    """The job tries again; after so many attempts the run says why, and the next one finishes."""

    await fill(registry, store)
    ctx, account_id = at_once(registry.ctx), await registry.account_id()
    run = await ctx.database.write(start_collection, account_id, ctx.new_id(), ctx.change_by(""))
    store.files.refusals = 100
    kind = replace(collection_kind(ctx, store), max_attempts=1)
    await run_due(ctx.database, [kind], ctx.clock)
    ended = await ctx.database.read(find_run, KIND, account_id, run.id)
    assert ended is not None
    assert (ended.state, ended.fault) == ("failed", "STORE_UNAVAILABLE: Input/output error")
    told = [(fault.code, bool(fault.subject)) for fault in ended.faults]
    assert told[-1] == ("STORE_UNAVAILABLE", False)
    assert set(told[:-1]) == {("STORE_UNAVAILABLE", True)}
    store.files.refusals = 0
    await check_needed(registry, store)
    await clean(registry, store)
    await check_clean(registry, store)


class Sweepless(PassingDatabase):
    """A database that fails the next sweep."""

    failure: Exception | None = None

    async def before(self, _kind: Kind, call: Callable[..., object]) -> None:
        failure = self.failure
        if failure is not None and getattr(call, "__name__", "") == "_sweep":
            self.failure = None
            raise failure


@on_both_databases
@pytest.mark.parametrize(
    ("failure", "fault"),
    [
        (Unavailable("the disk is full"), "SERVICE_UNAVAILABLE: the disk is full"),
        (ConstraintViolated("something refers to it by now"), None),
    ],
    ids=["unavailable", "referred to"],
)
async def test_a_sweep_that_the_database_refuses_is_done_by_this_run_or_the_next(
    registry: Registry, store: RefusingStore, failure: Exception, fault: str | None
) -> None:
    await fill(registry, store)
    database = Sweepless(registry.ctx.database)
    ctx, account_id = at_once(replace(registry.ctx, database=database)), await registry.account_id()
    run = await ctx.database.write(start_collection, account_id, ctx.new_id(), ctx.change_by(""))
    database.failure = failure
    kind = replace(collection_kind(ctx, store), max_attempts=1)
    await run_due(ctx.database, [kind], ctx.clock)
    assert database.failure is None
    ended = await ctx.database.read(find_run, KIND, account_id, run.id)
    assert ended is not None
    assert (ended.state, ended.fault) == ("failed" if fault else "succeeded", fault)
    await check_needed(registry, store)
    await clean(registry, store)
    await check_clean(registry, store)


async def test_one_bad_file_keeps_no_other(registry: Registry, store: RefusingStore) -> None:
    for data in GARBAGE:
        await push_blob(registry, data)
    store.files.refusals = 1
    with pytest.raises(StoreUnavailable):
        await collect(at_once(registry.ctx), store, await registry.account_id())
    assert len(list(store.files.list_objects())) == 1
    await clean(registry, store)
    assert list(store.files.list_objects()) == []


async def test_a_file_that_can_never_be_deleted_stops_no_phase(
    registry: Registry, store: RefusingStore
) -> None:
    ctx, account_id = at_once(registry.ctx), await registry.account_id()
    await push_blob(registry, DATA)
    store.files.bad = frozenset(found.object_id for found in store.files.list_objects())
    for data in (b"", *GARBAGE):
        if data:
            await push_blob(registry, data)
        with pytest.raises(StoreUnavailable):
            await collect(ctx, store, account_id)
        assert {found.object_id for found in store.files.list_objects()} == store.files.bad


async def test_a_reader_finishes_what_is_removed_meanwhile(
    registry: Registry, store: RefusingStore
) -> None:
    """The file is open: its last byte comes after its removal."""

    await push_blob(registry, DATA)
    (found,) = store.files.list_objects()
    with closing(store.files.open(found.object_id)) as stored:
        chunks = stored.chunks()
        read = bytearray(next(chunks))
        await run_phases(registry, store, (MARK, SWEEP, 3))
        assert list(store.files.list_objects()) == []
        for chunk in chunks:
            read += chunk
    assert len(read) == len(DATA)
    assert digest_of(bytes(read)) == digest_of(DATA)


class OneBadFile(MemoryFiles):
    """Fails to change the bytes of one id."""

    bad = ""

    def discard(self, upload_id: str) -> None:
        """Refuse, or discard."""
        self._check(upload_id)
        super().discard(upload_id)

    def take_back(self, object_id: str) -> bool:
        """Refuse, or put back."""
        self._check(object_id)
        return super().take_back(object_id)

    def delete_orphan(self, orphan: Orphan) -> None:
        """Refuse, or delete."""
        self._check(orphan.object_id)
        super().delete_orphan(orphan)

    def _check(self, object_id: str) -> None:
        if object_id == self.bad:
            raise StoreUnavailable("the blob store failed (EIO)")


class RefusingOne(BlobStore):
    """A store of such files."""

    def __init__(self) -> None:
        self.files: Final = OneBadFile()
        super().__init__(cast("DiskFiles", self.files), called_at_once, look_seconds=3600)


@pytest.fixture
def one_refused() -> RefusingOne:
    """Return a store that refuses to change one file."""
    return RefusingOne()


@pytest.fixture
async def purging(sqlite_database: str, one_refused: RefusingOne) -> AsyncIterator[Registry]:
    """Return a registry over that store."""
    async with open_registry(sqlite_database, one_refused) as registry:
        yield registry


async def begin(registry: Registry, store: RefusingOne) -> str:
    """Open an upload session with some bytes; return the id under which they are staged."""
    ask, before = registry.client.request, set(store.files.staged)
    location = (await ask("POST", "/v2/dev/app/blobs/uploads/")).headers["location"]
    assert (await ask("PATCH", location, b"a layer")).status == 202
    (staged,) = set(store.files.staged) - before
    return staged


async def test_one_upload_that_cannot_be_discarded_keeps_no_other(
    purging: Registry, one_refused: RefusingOne
) -> None:
    first, *_ = [await begin(purging, one_refused) for _ in range(3)]
    purging.clock.advance(25 * 3600)
    one_refused.files.bad = first
    with pytest.raises(StoreUnavailable):
        await discard_expired_uploads(purging.ctx)
    assert list(one_refused.files.staged) == [first]
    one_refused.files.bad = ""
    purging.clock.advance(3600)
    assert await discard_expired_uploads(purging.ctx) == 1
    assert not one_refused.files.staged


async def test_one_orphan_that_cannot_be_moved_or_deleted_keeps_no_other(
    purging: Registry, one_refused: RefusingOne, caplog: pytest.LogCaptureFixture
) -> None:
    owned = [await begin(purging, one_refused) for _ in range(2)]
    unowned = [uuid7(purging.clock()) for _ in range(2)]
    for each in unowned:
        await (await one_refused.stage(each, None)).aclose()
    for each in (*owned, *unowned):
        assert await one_refused.set_aside(each, 1)
    for bad, kept in ((owned[0], {owned[0]}), (unowned[0], {unowned[0]})):
        one_refused.files.bad = bad
        await blobs_of(purging.ctx, one_refused).settle_orphans()
        assert set(one_refused.files.orphans) == kept
        assert "the blob store failed (EIO)" in caplog.text
        caplog.clear()
        one_refused.files.bad = ""
        one_refused.files.orphans |= {each: (Orphan(each, 1, False, 0), b"") for each in unowned}

"""Bytes that no row owns: which of them the scan takes, and which it leaves alone."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Final
from uuid import UUID

import pytest

from cloudcore.clock import MICROSECONDS, uuid7
from registry.blobstore.base import ListedBytes
from registry.blobstore.store import Staged
from registry.gc.database_rollback import accept_database
from registry.gc.orphans import (
    EVERY_SECONDS,
    STAGED,
    OrphanScan,
    begun_at,
    places_of,
    set_orphans_aside,
)
from registry.oci.digest import digest_of
from tests.collecting import at_once
from tests.fault.collected import MARK, SWEEP, push_blob, run_phases
from tests.fault.seams import Died, SteppingDatabase, Steps
from tests.inprocess import Registry, open_registry
from tests.memory_store import MemoryStore

HOUR: Final = 3600
MINUTE: Final = 60
DATA: Final = b"bytes of nobody"
NUMBER: Final = 7
PLACE: Final = f"{NUMBER:02x}"
"""The partition of what a test makes."""

_ADD: Final = (
    "INSERT OR IGNORE INTO blob_objects (id, account_id, digest, size, stored_size, encoding,"
    " is_current, state, created_at, stored_id)"
    " SELECT :id, id, :digest, 15, 15, 'plain', true, 'live', 0, :id"
    " FROM accounts"
)


@pytest.fixture
def steps() -> Steps:
    """Return the steps of the registry's database."""
    return Steps()


@pytest.fixture
def store() -> MemoryStore:
    """Return the store of the registry."""
    return MemoryStore()


@pytest.fixture
async def registry(metadata_url: str, store: MemoryStore, steps: Steps) -> AsyncIterator[Registry]:
    """Return a registry whose bytes are in memory."""
    around = lambda database: SteppingDatabase(database, steps)  # noqa: E731
    async with open_registry(metadata_url, store, around=around) as registry:
        yield registry


def make_id(registry: Registry, number: int = 0) -> str:
    """Return an id of now that lies in `PLACE`."""
    value = UUID(uuid7(registry.clock())).int >> 24 << 24
    return str(UUID(int=value | number << 8 | NUMBER))


def leave(registry: Registry, store: MemoryStore, count: int = 1, *, staged: bool = False) -> None:
    """Leave bytes without a row, as a process that died."""
    for number in range(count):
        with closing(store.files.stage(make_id(registry, number))) as held:
            held.write(memoryview(DATA))
            if not staged:
                held.commit(digest_of(DATA))


async def test_what_a_dead_push_left_is_removed(
    registry: Registry, store: MemoryStore, steps: Steps
) -> None:
    """A monolithic push died between its bytes and its row."""
    await push_blob(registry, b"first")
    pushing = steps.taken[steps.taken.index("after _create") + 1 :]

    def die() -> None:
        raise Died

    steps.strike_at(pushing.index("before _record_rows"), die)
    with pytest.raises(Died):
        await push_blob(registry, DATA)
    (orphan,) = [each for each, data in store.files.objects.items() if data == DATA]
    place = orphan[-2:]
    assert await set_orphans_aside(registry.ctx, store, place) == 0  # it is young
    registry.clock.advance(2 * HOUR)
    assert await set_orphans_aside(registry.ctx, store, place) == 1
    assert list(store.files.objects.values()) == [b"first"]
    assert not store.files.held


async def test_the_young_are_left_alone(registry: Registry, store: MemoryStore) -> None:
    leave(registry, store)
    registry.clock.advance(4 * MINUTE)
    assert await set_orphans_aside(registry.ctx, store, PLACE) == 0
    registry.clock.advance(MINUTE)
    assert await set_orphans_aside(registry.ctx, store, PLACE) == 1
    assert not store.files.objects


async def test_staged_bytes_without_a_session_are_removed(
    registry: Registry, store: MemoryStore
) -> None:
    answer = await registry.client.request("POST", "/v2/dev/app/blobs/uploads/")
    location = answer.headers["location"]
    assert (await registry.client.request("PATCH", location, DATA)).status == 202
    of_the_session = list(store.files.staged)
    leave(registry, store, staged=True)
    registry.clock.advance(2 * HOUR)
    assert await set_orphans_aside(registry.ctx, store, PLACE) == 0  # that is another place
    assert await set_orphans_aside(registry.ctx, store, STAGED) == 1
    assert list(store.files.staged) == of_the_session
    path = f"{location}?digest={digest_of(DATA)}"
    assert (await registry.client.request("PUT", path)).status == 201


async def test_who_holds_them_keeps_them(registry: Registry, store: MemoryStore) -> None:
    """A push of hours has no row: its hold says that it goes on."""

    for is_object, place in ((False, STAGED), (True, PLACE)):
        with closing(store.files.stage(make_id(registry))) as held:
            held.write(memoryview(DATA))
            if is_object:
                held.commit(digest_of(DATA))
            registry.clock.advance(2 * HOUR)
            assert await set_orphans_aside(registry.ctx, store, place) == 0
        assert await set_orphans_aside(registry.ctx, store, place) == 1


async def test_what_became_a_blob_since_it_was_asked_for_stays(sqlite_database: str) -> None:
    """The push ended between the question and the hold."""

    class Late(MemoryStore):
        async def resume(self, upload_id: str) -> Staged:
            assert upload_id in lost
            with sqlite3.connect(sqlite_database.removeprefix("sqlite:///")) as raw:
                raw.execute(_ADD, {"id": upload_id, "digest": str(digest_of(DATA))})
            return await super().resume(upload_id)

    lost: set[str] = set()

    store = Late()
    async with open_registry(sqlite_database, store) as registry:
        leave(registry, store)
        lost.update(store.files.objects)
        registry.clock.advance(2 * HOUR)
        assert await set_orphans_aside(registry.ctx, store, PLACE) == 0
        assert store.files.objects.keys() == lost
        assert not store.files.held


async def test_the_quarantined_are_left_alone(registry: Registry, store: MemoryStore) -> None:
    await push_blob(registry, DATA)
    await run_phases(registry, store, (MARK, SWEEP))
    (object_id,) = store.files.objects
    registry.clock.advance(2 * HOUR)
    assert await set_orphans_aside(registry.ctx, store, object_id[-2:]) == 0
    assert list(store.files.objects) == [object_id]
    await run_phases(registry, store, (0,))
    assert not store.files.objects


@pytest.mark.parametrize(("count", "removed"), [(20, 20), (21, 0)])
async def test_too_many_are_not_believed(
    registry: Registry,
    store: MemoryStore,
    caplog: pytest.LogCaptureFixture,
    count: int,
    removed: int,
) -> None:
    """An older database, or another's: what looks like orphans is in use."""

    with caplog.at_level(logging.WARNING, "registry.gc.orphans"):
        leave(registry, store, count)
        await push_blob(registry, b"a newer one")  # one time in 256 it is in this place too
        stored = sum(each.endswith(PLACE) for each in store.files.objects)
        registry.clock.advance(2 * HOUR)
        assert await set_orphans_aside(registry.ctx, store, PLACE) == removed
        assert len(store.files.objects) == count - removed + 1
        await accept_database(registry.ctx, store)  # so its operator says that they are orphans
        assert await set_orphans_aside(registry.ctx, store, PLACE) == count - removed
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == (removed == 0)
    assert all(f"{count} of {stored} stored files belong to no row" in each for each in errors)


def spread(registry: Registry, store: MemoryStore, count: int) -> None:
    """Leave objects without rows, each in a shard of its own."""
    for number in range(count):
        value = UUID(uuid7(registry.clock())).int >> 8 << 8
        with closing(store.files.stage(str(UUID(int=value | number)))) as held:
            held.write(memoryview(DATA))
            held.commit(digest_of(DATA))


async def scan_all(registry: Registry, store: MemoryStore) -> int:
    """Let the scan come round once."""
    removed, orphan_scan = 0, OrphanScan(registry.ctx, store)
    for _ in places_of(store):
        removed += await orphan_scan.turn()
        registry.clock.advance(EVERY_SECONDS)
    return removed


@pytest.mark.parametrize("count", [1, 15, 30])
async def test_the_blobs_of_another_database_are_left_alone(
    registry: Registry, store: MemoryStore, count: int
) -> None:
    """A small registry has one file in a place: each by itself would look like an orphan."""

    spread(registry, store, count)
    store.files.stage(make_id(registry)).close()
    registry.clock.advance(2 * HOUR)
    assert await scan_all(registry, store) == 0
    assert (len(store.files.objects), len(store.files.staged)) == (count, 1)


async def test_an_orphan_among_blobs_is_removed_by_the_scan(
    registry: Registry, store: MemoryStore
) -> None:
    await push_blob(registry, b"one that is ours")
    spread(registry, store, 21)
    store.files.stage(make_id(registry)).close()
    await push_blob(registry, b"another that is ours")
    registry.clock.advance(2 * HOUR)
    assert await scan_all(registry, store) == 0
    for object_id in [each for each, data in store.files.objects.items() if data == DATA][3:]:
        del store.files.objects[object_id]
    assert await scan_all(registry, store) == 4
    assert (len(store.files.objects), len(store.files.staged)) == (2, 0)


async def test_every_place_has_its_turn(sqlite_database: str) -> None:
    """All partitions at first and again in a day, and what is staged in each turn."""

    class Watched(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.visited: list[str] = []

        def list_ids(self, partition: str) -> AsyncIterator[str]:
            self.visited.append(partition)
            return super().list_ids(partition)

        def list_staged(self) -> AsyncIterator[ListedBytes]:
            self.visited.append(STAGED)
            return super().list_staged()

    store = Watched()
    async with open_registry(sqlite_database, store) as registry:
        orphan_scan = OrphanScan(at_once(registry.ctx), store)
        await orphan_scan.turn()
        first, store.visited = store.visited, []
        partitions = list(store.partitions())
        assert sorted(first[:-1]) == [*partitions, STAGED]
        for _ in partitions:
            registry.clock.advance(EVERY_SECONDS)
            await orphan_scan.turn()
    assert sorted(store.visited) == [*partitions, *[STAGED] * len(partitions)]
    assert len(partitions) * EVERY_SECONDS <= 24 * HOUR


def test_an_id_tells_when_it_was_made() -> None:
    moment = 1_750_000_000 * MICROSECONDS + 123_456
    assert begun_at(uuid7(moment)) == moment - moment % 1000

"""A database that went back is noticed, on both databases; an operator has the last word."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import bindparam

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from registry.errors import StoreUnavailable
from registry.gc.database_rollback import (
    DatabaseWentBack,
    Generations,
    accept_database,
    check_generation,
    renew_generation,
)
from registry.gc.purge import discard_expired_uploads
from registry.metadata.control_tables import store_generations
from registry.oci.digest import digest_of
from tests.fault.collected import push_blob
from tests.fault.seams import Died, SteppingDatabase, Steps
from tests.inprocess import open_registry
from tests.memory_store import MemoryStore

FORGET = Statement(store_generations.delete().where(store_generations.c.id == bindparam("id")))


async def test_a_lost_generation_is_noticed_until_it_is_accepted(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    def forget(tx: Connection, generation: str | None) -> None:
        assert tx.execute(FORGET, id=generation) == 1

    store = MemoryStore()
    async with open_registry(database_url, store) as registry:
        ctx = registry.ctx
        await check_generation(ctx, store)  # nothing was noted yet
        await Generations(ctx, store).begin()
        await push_blob(registry, b"since the copy")
        history = Generations(ctx, store)
        await history.renew_if_due()
        lost = await store.generation()
        await history.renew_if_due()
        assert await store.generation() == lost, "nothing came since"
        await ctx.database.write(forget, lost)
        with pytest.raises(DatabaseWentBack):
            await check_generation(ctx, store)
        with pytest.raises(DatabaseWentBack):
            await renew_generation(ctx, store)
        for each in (history, Generations(ctx, store)):
            caplog.clear()
            for note in (each.begin, each.renew_if_due, each.end):
                await note()
                assert await store.generation() == lost
                told = caplog.text.count("the database is older than the blobs")
                assert told == 1, "each process tells it once, at its start"
        await accept_database(ctx, store)
        await check_generation(ctx, store)
        await renew_generation(ctx, store)


async def test_a_generation_ends_with_what_is_pushed_and_after_some_minutes(
    sqlite_database: str,
) -> None:
    store = MemoryStore()
    async with open_registry(sqlite_database, store) as registry:
        history, seen = Generations(registry.ctx, store), set[str | None]()
        await history.begin()
        for push, seconds, is_new in ((True, 1, True), (False, 298, False), (False, 2, True)):
            seen.add(await store.generation())
            if push:
                await push_blob(registry, b"newer than the generation")
            registry.clock.advance(seconds)
            await history.renew_if_due()
            assert (await store.generation() not in seen) is is_new


async def test_a_store_that_was_never_used_is_told_once_at_the_start(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As where the disk of the blobs is not mounted."""
    async with open_registry(database_url, MemoryStore()) as registry:
        ctx = registry.ctx
        await Generations(ctx, MemoryStore()).begin()
        assert caplog.text == "", "the database is new too"
        registry.clock.advance(10)
        unmounted = MemoryStore()
        await Generations(ctx, unmounted).begin()
        assert "is the disk of the blobs mounted?" in caplog.text
        caplog.clear()
        await Generations(ctx, unmounted).begin()
        assert caplog.text == ""


async def test_a_store_that_does_not_answer_at_the_start_is_told_and_waited_for(
    sqlite_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Absent(MemoryStore):
        async def generation(self) -> str | None:
            raise StoreUnavailable("the blob store failed")

    async with open_registry(sqlite_database, MemoryStore()) as registry:
        await Generations(registry.ctx, Absent()).begin()
    assert "whether the blobs are those of the database is not known" in caplog.text
    assert "the state of the database could not be recorded" in caplog.text


async def test_two_processes_that_start_for_the_first_time_tell_nothing(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One has committed the first generation, and not noted it, while the other looks."""
    committed, looked = asyncio.Event(), asyncio.Event()

    class Slow(MemoryStore):
        async def generation(self) -> str | None:
            found = await super().generation()
            if committed.is_set():
                looked.set()
            return found

        async def save_generation(self, generation: str) -> None:
            committed.set()
            await looked.wait()
            await super().save_generation(generation)

    store = Slow()
    async with open_registry(database_url, store) as registry:
        first = asyncio.create_task(Generations(registry.ctx, store).begin())
        await committed.wait()
        await Generations(registry.ctx, store).begin()
        await first
    assert caplog.text == ""


async def test_an_expired_upload_that_became_an_object_is_not_deleted(sqlite_database: str) -> None:
    """By a later state of the database it may be a blob: the orphan scan sets it aside."""
    steps = Steps()
    data = b"committed, and no row told"

    def die() -> None:
        raise Died

    store = MemoryStore()
    around = lambda database: SteppingDatabase(database, steps)  # noqa: E731
    async with open_registry(sqlite_database, store, around=around) as registry:
        ask = registry.client.request
        location = (await ask("POST", "/v2/dev/app/blobs/uploads/")).headers["location"]
        assert (await ask("PATCH", location, data)).status == 202
        steps.strike_at(2, die)  # the lease is taken at 0 and 1, then the blob is recorded
        with pytest.raises(Died):
            await ask("PUT", f"{location}?digest={digest_of(data)}")
        steps.strike_at(-1, die)
        registry.clock.advance(25 * 3600)
        assert await discard_expired_uploads(registry.ctx) == 1
        assert list(store.files.objects.values()) == [data]
        assert not store.files.held

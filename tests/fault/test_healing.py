"""A push that heals a damaged blob: it may die or fail anywhere, and others may come between."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn, cast

import pytest

from cloudcore.db.base import Database, OutcomeUnknown
from registry.blobstore.base import DataKey, OpenObject
from registry.blobstore.disk.store import FilesystemStore
from registry.blobstore.store import BlobStore
from registry.errors import StoreUnavailable
from registry.gc.fsck import check
from registry.oci.digest import digest_of
from tests.collecting import AT_ONCE, collect
from tests.fault.seams import Died, SteppingDatabase, SteppingStore, Steps
from tests.inprocess import Registry, open_registry
from tests.integration.damaged import cut, file_of, flip, marked
from tests.memory_store import MemoryStore

BLOB: Final = b"layer" * 1000
DIGEST: Final = digest_of(BLOB)
WEEK: Final = 7 * 24 * 3600


def die() -> NoReturn:
    raise Died


def fail() -> NoReturn:
    raise StoreUnavailable("struck")


async def push(registry: Registry, repository: str = "one") -> int:
    target = f"/v2/dev/{repository}/blobs/uploads/?digest={DIGEST}"
    return (await registry.client.request("POST", target, BLOB)).status


async def pulled(registry: Registry, repository: str) -> tuple[int, bool]:
    """Return the status of a GET, and whether it answered the right bytes."""
    answer = await registry.client.request("GET", f"/v2/dev/{repository}/blobs/{DIGEST}")
    return answer.status, answer.body == BLOB


async def collect_all(registry: Registry, files: FilesystemStore) -> None:
    """Collect with no delay."""
    delays = replace(AT_ONCE, gc_grace_seconds=WEEK)  # no manifest references the blob
    await collect(replace(registry.ctx, delays=delays), files, await registry.account_id())


async def struck_push(
    url: str, folder: Path, number: int, strike: Callable[[], NoReturn], *, is_stale: bool
) -> bool:
    """Damage, push with a strike at one step, push again; return whether there was the step."""
    steps = Steps()
    with closing(FilesystemStore(folder)) as files:
        async with open_registry(
            url,
            cast("BlobStore", SteppingStore(files, steps)),
            around=lambda database: SteppingDatabase(database, steps),
        ) as registry:
            assert [await push(registry, name) for name in ("one", "two")] == [201, 201]
            (flip if is_stale else cut)(await file_of(registry, folder, DIGEST))
            registry.clock.advance(WEEK if is_stale else 0)
            steps.strike_at(number, strike)
            with suppress(Died):
                status = await push(registry)
                assert status == 201 or number < len(steps.taken)
                if status == 201:
                    assert await pulled(registry, "two") == (200, True)
        async with open_registry(url, files, clock=registry.clock) as registry:
            if not is_stale:  # what a client that asks first must hear, or it never pushes
                head = await registry.client.request("HEAD", f"/v2/dev/one/blobs/{DIGEST}")
                assert head.status == 404 or await pulled(registry, "two") == (200, True)
            assert await push(registry) == 201
            for repository in ("one", "two"):
                assert await pulled(registry, repository) == (200, True)
            assert await marked(registry) == []
            registry.clock.advance(3600)
            report = await check(registry.ctx.database, files, lambda _: None, clock=registry.clock)
            assert report.violations == []
            assert len(report.orphans) <= 1  # what the dead process had committed
            await collect_all(registry, files)
            assert len(list(files.files.list_objects())) == 1 + len(report.orphans)
    return number < len(steps.taken)


@pytest.mark.parametrize("is_stale", [True, False])
@pytest.mark.parametrize("strike", [die, fail])
def test_a_push_heals_after_a_strike_at_any_step_of_the_one_before(
    migrated_file: Path, tmp_path: Path, strike: Callable[[], NoReturn], *, is_stale: bool
) -> None:
    for number in itertools.count():
        here = tmp_path / str(number)
        here.mkdir()
        shutil.copy(migrated_file, here / "metadata.db")
        url = f"sqlite:///{here}/metadata.db"
        if not asyncio.run(struck_push(url, here / "blobs", number, strike, is_stale=is_stale)):
            break
    assert number >= 8


class Interposing:
    """A database where others act before, or an answer is lost after, a push writes its rows."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.before: list[Callable[[], Awaitable[object]]] = []
        self.loses_answers = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the database's own
        """Return what the database has."""
        return getattr(self._database, name)

    async def write(self, change: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Write, with what comes between."""
        if change.__name__ == "_record_rows" and self.before:
            await self.before.pop()()
        result = await self._database.write(change, *args, **kwargs)
        if change.__name__ == "_record_rows" and self.loses_answers:
            self.loses_answers -= 1
            raise OutcomeUnknown("the connection died")
        return result


@asynccontextmanager
async def open_between(url: str, folder: Path) -> AsyncIterator[tuple[Registry, Interposing]]:
    """Open a registry over files, and what stands between it and its database."""
    between: list[Interposing] = []

    def around(database: Database) -> Database:
        between.append(Interposing(database))
        return between[0]

    with closing(FilesystemStore(folder)) as files:
        async with open_registry(url, files, around=around) as registry:
            yield registry, between[0]


async def test_what_another_push_recorded_meanwhile_is_looked_at_first(
    database_url: str, tmp_path: Path
) -> None:
    """Both looked when the account had nothing; one of the two files stays, and it is whole."""

    async with open_between(database_url, tmp_path / "blobs") as (registry, between):

        async def other() -> None:
            assert await push(registry, "two") == 201
            cut(await file_of(registry, tmp_path / "blobs", DIGEST))

        between.before.append(other)
        assert await push(registry) == 201
        for repository in ("one", "two"):
            assert await pulled(registry, repository) == (200, True)


async def test_a_healing_whose_answer_was_lost_is_found_by_the_second_try(
    sqlite_database: str, tmp_path: Path
) -> None:
    async with open_between(sqlite_database, tmp_path / "blobs") as (registry, between):
        assert await push(registry) == 201
        between.loses_answers = 1
        assert await push(registry) == 201  # the second try tells
        cut(await file_of(registry, tmp_path / "blobs", DIGEST))
        between.loses_answers = 1
        assert await push(registry) == 201
        assert await pulled(registry, "one") == (200, True)
        cut(await file_of(registry, tmp_path / "blobs", DIGEST))
        between.loses_answers = 2
        assert await push(registry) == 503
        assert await pulled(registry, "one") == (200, True)
        assert await push(registry) == 201
        registry.clock.advance(3600)
        with closing(FilesystemStore(tmp_path / "blobs")) as files:
            report = await check(registry.ctx.database, files, lambda _: None, clock=registry.clock)
        assert (report.violations, report.orphans) == ([], [])


async def test_a_healthy_duplicate_is_looked_up_and_not_read(sqlite_database: str) -> None:
    class Looking(MemoryStore):
        calls: list[object]

        async def open(
            self, object_id: str, size: int | None = None, data_key: DataKey | None = None
        ) -> OpenObject:
            self.calls.append("open")
            return await super().open(object_id, size, data_key)

        async def check(self, object_id: str, stored_size: int) -> None:
            self.calls.append(stored_size)
            await super().check(object_id, stored_size)

    store = Looking()
    store.calls = []
    async with open_registry(sqlite_database, store) as registry:
        assert await push(registry) == 201
        store.calls = []
        assert [await push(registry, name) for name in ("one", "two")] == [201, 201]
        assert store.calls == [len(BLOB)] * 2
        assert len(store.files.objects) == 1

"""A push that heals a damaged blob: it may die or fail anywhere, and others may come between."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

from cloudcore.db.base import Database, OutcomeUnknown
from registry.blobstore.base import DataKey, OpenObject
from registry.blobstore.filesystem import FilesystemStore
from registry.blobstore.memory import MemoryStore
from registry.errors import StoreUnavailable
from registry.gc.fsck import check
from registry.metadata.collector.collection import begin_removal
from registry.metadata.repositories.live import find_account
from registry.oci.digest import digest_of
from tests.collecting import at_once, collect
from tests.fault.seams import Died, SteppingDatabase, SteppingStore, Steps
from tests.inprocess import Registry, open_registry
from tests.integration.damaged import cut, file_of, flip, marked

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


async def struck_push(
    url: str, folder: Path, number: int, strike: Callable[[], NoReturn], *, is_stale: bool
) -> bool:
    """Damage, push with a strike at one step, push again; return whether there was the step."""
    steps = Steps()
    with closing(FilesystemStore(folder)) as files:
        async with open_registry(
            url,
            SteppingStore(files, steps),
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
    assert number > 10


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


async def test_an_answer_that_was_lost_is_no_success_while_the_bytes_are_damaged(
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
        assert (await pulled(registry, "one"))[0] == 404
        assert await push(registry) == 201
        assert await pulled(registry, "one") == (200, True)


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


class CollectedStore(FilesystemStore):
    """A store in which the collector comes before bytes are moved to their object's id."""

    async def collect(self) -> None:
        """Collect what nothing references."""

    async def replace(self, object_id: str, new_id: str) -> None:
        """Collect, then move the bytes."""
        await self.collect()
        await super().replace(object_id, new_id)


@pytest.mark.parametrize("last", ["sweep", "begin of removal", "removal"])
async def test_bytes_moved_to_an_object_that_was_collected_are_no_orphan(
    database_url: str, tmp_path: Path, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The move took longer than the grace period, as when a process was stopped."""
    with closing(CollectedStore(tmp_path / "blobs")) as store:
        async with open_registry(database_url, store) as registry:
            assert await push(registry) == 201
            registry.clock.advance(WEEK)  # its bytes are replaced unread
            account = await registry.ctx.database.read(find_account, "dev")
            assert account is not None
            soon = at_once(registry.ctx)
            late = replace(soon, delays=replace(soon.delays, gc_quarantine_seconds=WEEK))

            async def collect_all() -> None:
                registry.clock.advance(1)
                for _ in range(2):
                    await collect(soon if last == "removal" else late, store, account.id)
                if last == "begin of removal":
                    now = registry.clock()
                    await registry.ctx.database.write(begin_removal, account.id, now, now, 9)

            monkeypatch.setattr(store, "collect", collect_all)
            assert await push(registry) == 503
            monkeypatch.undo()
            is_recoverable = last == "sweep"
            assert len(list(store.files.list_objects())) == is_recoverable
            assert await push(registry) == 201
            assert await pulled(registry, "one") == (200, True)
            registry.clock.advance(WEEK)
            await collect(soon, store, account.id)
            report = await check(registry.ctx.database, store, lambda _: None, clock=registry.clock)
            assert (report.violations, report.orphans) == ([], [])

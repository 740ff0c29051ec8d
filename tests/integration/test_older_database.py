"""An older copy of the database beside newer blobs: nothing is lost, and the right one has all."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from cloudcore.jobs.runs import find_run
from cloudcore.jobs.worker import JobWorker
from registry.blobstore.disk.store import FilesystemStore
from registry.cli.main import main
from registry.gc.collection import collection_kind
from registry.gc.database_rollback import Generations, accept_database
from registry.gc.orphans import (
    EVERY_SECONDS,
    STAGED,
    OrphanScan,
    blobs_of,
    due_places,
    set_orphans_aside,
)
from registry.gc.purge import discard_expired_uploads
from registry.oci.digest import digest_of
from registry.services.collector_runs import KIND, start_collection
from tests.collecting import at_once
from tests.fault.collected import check_image, push_blob, push_image
from tests.inprocess import START, Registry, open_registry

HOUR: Final = 3600
DAY: Final = 24 * HOUR
BEFORE: Final = 24
Scenario = Callable[[Registry, FilesystemStore], Awaitable[None]]


pytestmark = pytest.mark.usefixtures("no_settings")


class Site:
    """A data folder, and the copies of its database."""

    def __init__(self, data: Path, migrated: Path) -> None:
        self.data = data
        self.database = data / "metadata.db"
        data.mkdir()
        shutil.copy(migrated, self.database)
        self.now = START

    def play(self, scenario: Scenario, *, later: float = 0, notes: bool = True) -> None:
        """Serve the registry for a while, after some seconds have passed.

        With `notes`, database and blobs note their generations as a server does.
        """

        async def run() -> None:
            with closing(FilesystemStore(self.data / "blobs")) as store:
                async with open_registry(f"sqlite:///{self.database}", store) as registry:
                    registry.clock.now = self.now
                    registry.clock.advance(later)
                    history = Generations(registry.ctx, store)
                    if notes:
                        await history.begin()
                    await scenario(registry, store)
                    if notes:
                        await history.end()
                    self.now = registry.clock.now

        asyncio.run(run())

    def push(self, first: int, last: int, *, notes: bool = True) -> None:
        async def scenario(registry: Registry, _: FilesystemStore) -> None:
            for number in range(first, last):
                await push_image(registry, b"layer %d" % number)

        self.play(scenario, notes=notes)

    def copy(self, name: str) -> Path:
        """Copy the database, as a backup does."""
        copy = self.data.parent / name
        with closing(sqlite3.connect(self.database)) as raw, closing(sqlite3.connect(copy)) as to:
            raw.backup(to)
        return copy

    def bring(self, copy: Path) -> None:
        for suffix in ("", "-wal", "-shm"):
            self.database.with_name(f"metadata.db{suffix}").unlink(missing_ok=True)
        shutil.copy(copy, self.database)

    def files(self) -> set[str]:
        """Return the ids of all stored files that are where they were put."""
        places = ("objects", "uploads")
        return {
            each.name
            for place in places
            for each in (self.data / "blobs" / place).rglob("*")
            if each.is_file()
        }

    def orphans(self) -> set[str]:
        folder = self.data / "blobs" / "orphans"
        return {each.name.rpartition(".")[2] for each in folder.iterdir()}

    def remove_orphans(self) -> int:
        """Run ``entrepot fsck --quick --remove-orphans``."""
        return main(("fsck", "--quick", "--remove-orphans", "--data", str(self.data)))

    async def scan_all(self, registry: Registry, store: FilesystemStore) -> None:
        """Let the scan come round once, and sweep each place by itself, but no empty one."""
        objects = self.data / "blobs" / "objects"
        used = {STAGED, *(each.parent.name for each in objects.rglob("*") if each.is_file())}
        orphan_scan, turned = OrphanScan(registry.ctx, store), {STAGED}
        for _ in store.partitions():
            *_, ((partition,), _) = due_places(store, registry.clock(), None)
            if partition in used:
                await orphan_scan.turn()
                turned.add(partition)
            registry.clock.advance(EVERY_SECONDS)
        assert turned == used
        for place in sorted(used):
            await set_orphans_aside(registry.ctx, store, place)

    def check_pulls(self, count: int) -> None:
        async def scenario(registry: Registry, _: FilesystemStore) -> None:
            for number in range(count):
                await check_image(registry, b"layer %d" % number)

        self.play(scenario)


@pytest.fixture
def site(tmp_path: Path, migrated_file: Path) -> Site:
    return Site(tmp_path / "data", migrated_file)


@pytest.mark.parametrize(("more", "notes"), [(1, True), (15, True), (15, False)])
def test_nothing_is_lost_beside_an_older_database(
    site: Site,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    more: int,
    notes: bool,
) -> None:
    """By its history or, had it noted none, by the rows that miss at its end."""
    site.push(0, BEFORE, notes=notes)
    older = site.copy("older.db")
    site.push(BEFORE, BEFORE + more, notes=notes)
    right, files = site.copy("right.db"), site.files()
    site.bring(older)
    assert site.remove_orphans() == 1
    assert "gc accept-database" in capsys.readouterr().err
    with caplog.at_level(logging.ERROR):
        site.play(site.scan_all, later=2 * HOUR, notes=notes)
    assert "gc accept-database" in caplog.text
    assert site.files() == files
    assert not site.orphans()
    site.bring(right)
    site.check_pulls(BEFORE + more)


def test_what_is_taken_for_orphans_waits_for_the_right_database(site: Site) -> None:
    """Nobody noticed: the older database got rows of its own, and the scan set aside the rest."""
    site.push(0, 20, notes=False)
    older = site.copy("older.db")
    site.push(20, 23, notes=False)
    right = site.copy("right.db")
    files = site.files()
    site.bring(older)

    async def go_on(registry: Registry, store: FilesystemStore) -> None:
        await push_blob(registry, b"newer than what is unknown")
        await site.scan_all(registry, store)
        registry.clock.advance(5 * DAY)
        await OrphanScan(registry.ctx, store).turn()

    site.play(go_on, later=2 * HOUR, notes=False)
    orphans = site.orphans()
    assert len(orphans) == 3
    assert not files & site.files() & orphans
    site.bring(right)
    site.check_pulls(23)  # a read by itself takes back what it misses
    assert not site.orphans()


def test_the_scan_puts_back_what_has_a_row_again(site: Site) -> None:
    site.push(0, 3)
    files = site.files()

    async def scenario(registry: Registry, store: FilesystemStore) -> None:
        for object_id in files:
            assert await store.set_aside(object_id, registry.clock())
        registry.clock.advance(30 * DAY)
        await blobs_of(registry.ctx, store).settle_orphans()

    site.play(scenario)
    assert site.files() == files
    assert not site.orphans()


def test_orphans_go_when_their_days_are_over_and_not_before(site: Site) -> None:
    site.push(0, 3)

    async def scenario(registry: Registry, store: FilesystemStore) -> None:
        with closing(store.files.stage(registry.ctx.new_id())) as staged:
            staged.write(memoryview(b"nobody's"))
        registry.clock.advance(HOUR)
        orphan_scan = OrphanScan(registry.ctx, store)
        assert await orphan_scan.turn() == 1
        assert len(site.orphans()) == 1
        registry.clock.advance(7 * DAY - HOUR)
        await orphan_scan.turn()
        assert len(site.orphans()) == 1
        registry.clock.advance(2 * HOUR)
        await orphan_scan.turn()
        assert not site.orphans()

    files = site.files()
    site.play(scenario)
    assert site.files() == files


def test_nothing_is_deleted_while_the_database_is_too_old(site: Site) -> None:
    """Neither orphans, nor by the collector, nor what an open upload of then has become."""
    site.push(0, 3)
    uploads: list[str] = []

    async def begin(registry: Registry, _: FilesystemStore) -> None:
        answer = await registry.client.request("POST", "/v2/dev/app/blobs/uploads/")
        uploads.append(answer.headers["location"])
        assert (await registry.client.request("PATCH", uploads[0], b"a layer")).status == 202
        await push_blob(registry, b"unreferenced by then")

    async def finish(registry: Registry, _: FilesystemStore) -> None:
        path = f"{uploads[0]}?digest={digest_of(b'a layer')}"
        assert (await registry.client.request("PUT", path)).status == 201
        await push_image(registry, b"a layer")
        await push_blob(registry, b"of which the older one knows nothing")

    site.play(begin)
    older, before = site.copy("older.db"), site.files()
    site.play(finish)
    right, files = site.copy("right.db"), site.files()
    site.bring(older)

    async def go_on(registry: Registry, store: FilesystemStore) -> None:
        ctx = at_once(registry.ctx)
        await store.set_aside(min(files - before), 0)
        await discard_expired_uploads(ctx)
        await blobs_of(ctx, store).settle_orphans()
        account_id = await registry.account_id()
        run = await ctx.database.write(
            start_collection, account_id, ctx.new_id(), ctx.change_by("")
        )
        worker = JobWorker(ctx.database, [collection_kind(ctx, store)], clock=ctx.clock)
        working = asyncio.create_task(worker.run())
        while True:
            found = await ctx.database.read(find_run, KIND, account_id, run.id)
            assert found is not None
            if found.state != "running":
                break
            await asyncio.sleep(0)
        worker.stop()
        await working
        assert found.state == "failed"
        assert found.fault is not None
        assert found.fault.startswith("DATABASE_WENT_BACK")

    site.play(go_on, later=40 * DAY)
    assert site.files() | site.orphans() == files
    site.bring(right)

    async def check(registry: Registry, _: FilesystemStore) -> None:
        await check_image(registry, b"a layer")

    site.play(check)
    site.check_pulls(3)


def test_an_operator_accepts_the_older_database(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.push(0, 10)
    older = site.copy("older.db")
    site.push(10, 40)
    right, files = site.copy("right.db"), site.files()
    site.bring(older)
    data = ("--data", str(site.data))
    assert site.remove_orphans() == 1
    assert main(("gc", "accept-database", *data)) == 0
    assert site.remove_orphans() == 0
    assert len(site.orphans()) == 30
    capsys.readouterr()
    assert main(("gc", "orphans", *data)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["ID", "WAS", "BYTES", "SET", "ASIDE", "KEPT", "UNTIL"]
    first, *others = [line.split()[0] for line in lines[1:]]
    assert {first, *others} == site.orphans()
    assert main(("gc", "restore-orphans", first, *data)) == 0
    assert site.orphans() == {*others}
    assert main(("gc", "restore-orphans", first, *data)) == 3
    assert main(("gc", "restore-orphans", *data)) == 2
    assert main(("gc", "restore-orphans", "--all", *data)) == 0
    assert site.files() == files
    assert site.remove_orphans() == 0
    site.bring(right)
    assert main(("fsck", "--quick", *data)) == 1
    told = capsys.readouterr().out
    assert "30 files that had been set aside were put back: rows own them" in told
    warning = "the database is older than the blobs, or another's"
    assert f"Warning: {warning}" in told
    main(("scrub", *data))
    assert f"Warning: {warning}" in capsys.readouterr().out
    site.check_pulls(40)
    assert main(("gc", "accept-database", *data)) == 0
    assert main(("fsck", "--quick", *data)) == 0


def test_processes_that_note_generations_at_once_raise_no_alarm(site: Site) -> None:
    """Also when some of them die between the database and the file."""

    async def scenario(registry: Registry, store: FilesystemStore) -> None:
        class Dying(FilesystemStore):
            async def save_generation(self, generation: str) -> None:
                raise OSError(generation)

        histories = [Generations(registry.ctx, store) for _ in range(8)]
        with closing(Dying(site.data / "blobs")) as dying:
            for _ in range(5):
                died = Generations(registry.ctx, dying)
                ended = await asyncio.gather(
                    died.begin(), *(each.begin() for each in histories), return_exceptions=True
                )
                assert [type(each) for each in ended if each is not None] == [OSError]
                registry.clock.advance(8 * DAY)
        await OrphanScan(registry.ctx, store).turn()

    site.push(0, 1)
    site.play(scenario)
    assert site.remove_orphans() == 0


def test_a_database_that_went_back_cannot_hide_it_by_going_on(site: Site) -> None:
    """While it is wrong no generation is noted, however often it starts and stops."""
    site.push(0, 2)
    older = site.copy("older.db")
    site.push(2, 4)
    site.bring(older)
    for number in range(4, 7):
        site.push(number, number + 1)
    assert site.remove_orphans() == 1
    site.play(_accept)
    assert site.remove_orphans() == 0


async def _accept(registry: Registry, store: FilesystemStore) -> None:
    await accept_database(registry.ctx, store)

"""Nodes of one install: which may join those that run, and what the refused one is told."""

from __future__ import annotations

import asyncio
import errno
import json
import re
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.opening import is_postgresql
from cloudcore.errors import Conflict
from cloudcore.jobs.background import running
from cloudcore.nodes import rows
from cloudcore.nodes.fleet import Differs
from cloudcore.nodes.node import Watch
from cloudcore.nodes.watcher import NodeWatcher, begin, identity_of
from registry.composition import fleet as joining
from registry.composition.fleet import SHARED_SETTINGS, check_of, join_fleet, shared_settings
from registry.composition.main import Registry
from registry.composition.stores import RegistryStores
from registry.gc.database_rollback import Generations
from registry.metadata.blobs.objects import keep_object
from registry.metadata.repositories.repository import add_account
from registry.services.blobs.recording import new_object
from registry.settings.groups import Limits
from registry.settings.node import NodeSettings
from registry.settings.reading import NAMES
from registry.settings.settings import Settings
from registry.settings.texts import SettingsError
from tests.databases import on_both_databases
from tests.inprocess import ManualClock


class Fleet:
    """Nodes with one database, each with a folder of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.clock = ManualClock()
        self.clock.now = 1_800_000_000 * MICROSECONDS
        for each in ("blobs", "buckets"):
            (folder / each).mkdir()

    def settings(
        self,
        name: str,
        blobs: str = "blobs",
        buckets: str = "buckets",
        **given: Any,  # noqa: ANN401 - settings of any type
    ) -> Settings:
        """Return the settings of a node whose bytes are in folders that others may have too."""
        data = self.folder / name
        data.mkdir(exist_ok=True)
        for own, kept in (("blobs", blobs), ("buckets", buckets)):
            if not (data / own).is_symlink():
                (data / own).symlink_to(self.folder / kept)
        values = {"public_url": "https://registry.example.com", **given}
        return Settings(
            data=data, database_url=self.url, node=NodeSettings(node_name=name), **values
        )

    @asynccontextmanager
    async def opened(self, settings: Settings) -> AsyncIterator[RegistryStores]:
        async with Registry(settings, clock=self.clock).open() as process:
            yield process

    async def join(self, settings: Settings) -> None:
        """Have a node join, and note a generation as its workers do."""
        async with self.opened(settings) as process:
            await join_fleet(settings, process)
            await Generations(process.ctx, process.store).begin()

    async def push(self, settings: Settings, data: bytes) -> None:
        """Store a blob as a node does."""
        async with self.opened(settings) as process:
            account, now, object_id = uuid7(), self.clock(), uuid7()
            async with aclosing(await process.store.stage(object_id, None)) as staged:
                staged.write(memoryview(data))
                new = new_object(staged.commit(None))
            await process.ctx.database.write(add_account, account, "acme", now)
            await process.ctx.database.write(keep_object, account, new, now)

    async def refuses(self, settings: Settings, words: str) -> None:
        """Check that a node is kept from joining, and told why."""
        with pytest.raises(SettingsError, match=words):
            await self.join(settings)

    async def running(self, settings: Settings) -> list[str]:
        """Return the names of the nodes that run, as a node sees it."""
        async with self.opened(settings) as process:
            found = await process.ctx.database.read(rows.list_running, self.clock())
        return [each.name for each in found]

    async def go_on(self, settings: Settings) -> Conflict | None:
        """Have a node watch its machine until a turn of that, then stop; return what kept it."""
        ended = asyncio.Event()
        kept_by: list[Conflict] = []

        async def watch() -> None:
            ended.set()

        def give_up(error: Conflict) -> None:
            kept_by.append(error)
            ended.set()

        async with self.opened(settings) as process:
            node = settings.node.node(settings.data)
            watcher = NodeWatcher(
                process.ctx.database,
                self.clock,
                node,
                identity_of(node.folder),
                [Watch("test", 60, watch)],
                give_up,
                check_of(settings),
            )
            async with running(watcher):
                await ended.wait()
        return kept_by[0] if kept_by else None


@pytest.fixture
def fleet(metadata_url: str, tmp_path: Path) -> Fleet:
    return Fleet(metadata_url, tmp_path)


@on_both_databases
async def test_a_node_that_differs_from_those_that_run_is_refused(fleet: Fleet) -> None:
    await fleet.join(fleet.settings("east"))
    await fleet.join(fleet.settings("west", port=5001, workers=2, limits=Limits(drain_seconds=9)))
    other = fleet.settings("south", sealing="off", limits=Limits(max_blob_bytes=5))
    words = (
        "this node differs from those that run (east, west): max_blob_bytes is '5', not"
        " '107374182400'; sealing is 'off', not 'on'. Give all nodes the same; to change it, stop"
        " all of them first (docs/how-to/fleet.md)"
    )
    await fleet.refuses(other, f"^{re.escape(words)}$")
    async with fleet.opened(other) as process:
        found = await process.ctx.database.read(rows.list_nodes)
    assert [each.name for each in found] == ["east", "west"]


@on_both_databases
async def test_a_setting_changes_once_no_other_node_runs(fleet: Fleet) -> None:
    """A node that stopped in order does not run, nor one that was silent for a minute."""
    east, west = fleet.settings("east"), fleet.settings("west")
    await fleet.join(east)
    await fleet.join(west)
    assert await fleet.go_on(east) is None
    new = fleet.settings("east", sealing="off")
    await fleet.refuses(new, r"those that run \(west\)")
    fleet.clock.advance(rows.LOST_SECONDS + 1)
    await fleet.join(new)
    await fleet.refuses(west, "sealing is 'on', not 'off'")


@pytest.mark.postgresql
async def test_a_node_that_was_not_heard_ends_if_others_began_with_other_settings(
    postgresql_database: str, tmp_path: Path
) -> None:
    """As when the database was away from it for a minute, and all others were stopped."""
    fleet = Fleet(postgresql_database, tmp_path)
    east, west = fleet.settings("east"), fleet.settings("west")
    for each in (east, west):
        await fleet.join(each)
    fleet.clock.advance(rows.LOST_SECONDS + 1)
    await fleet.join(fleet.settings("west", sealing="off"))
    refused = await fleet.go_on(east)
    assert isinstance(refused, Differs)
    assert "sealing is 'on', not 'off'" in refused.message
    assert await fleet.running(east) == ["west"], "it does not say that it is there"

    async def no_turn() -> None:
        """Do nothing."""

    async with fleet.opened(east) as process:
        of = process.ctx.database, fleet.clock, east.node.node(east.data)
        with pytest.raises(Conflict):
            await begin(*of, [Watch("test", 60, no_turn)], print, check_of(east))
    assert await fleet.go_on(fleet.settings("east", sealing="off")) is None


async def test_a_node_alone_is_as_it_likes_and_two_machines_with_one_name_are_refused(
    fleet: Fleet,
) -> None:
    for sealing in ("on", "off", "on"):
        await fleet.join(fleet.settings("east", sealing=sealing))
    twin = Settings(
        data=fleet.folder / "twin",
        database_url=fleet.url,
        public_url="https://registry.example.com",
        node=NodeSettings(node_name="east"),
    )
    twin.data.mkdir()
    await fleet.refuses(twin, "node_name: another machine runs as 'east'")


async def test_prices_and_urls_are_compared_by_what_clients_see(fleet: Fleet) -> None:
    settings = fleet.settings("east")
    prices = fleet.folder / "catalog.json"
    prices.write_text(json.dumps(json.loads(settings.catalog.read_text())))
    await fleet.join(settings)
    other = fleet.settings("west", catalog_file=str(prices))
    await fleet.refuses(other, "catalog_file is 'SHA-256 ")
    other = fleet.settings("west", public_url="", port=5001)
    await fleet.refuses(other, r"public_url is 'http://127\.0\.0\.1:5001', not 'https")


@on_both_databases
async def test_a_node_that_cannot_ask_joins_no_other_machine(fleet: Fleet) -> None:
    settings = fleet.settings("east")
    settings.node.node(settings.data).folder.parent.write_text("no folder")
    if is_postgresql(fleet.url):
        await fleet.refuses(settings, "may join is not known: .*; start it again")
    else:  # there is one machine
        await fleet.join(settings)


async def test_a_version_with_other_prices_joins_the_one_before(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fleet.join(fleet.settings("east"))
    prices = fleet.folder / "catalog.json"
    prices.write_text("{}")
    monkeypatch.setattr("registry.settings.settings._PACKAGED_CATALOG", prices)
    await fleet.join(fleet.settings("west"))


async def test_a_node_without_the_blobs_of_the_others_is_refused(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "_LOOKS", 2)
    (fleet.folder / "unmounted").mkdir()
    await fleet.join(fleet.settings("east"))
    west = fleet.settings("west", "unmounted")
    await fleet.refuses(west, r"has not the blobs of the nodes that run \(east\)")
    assert await fleet.running(west) == ["east"]


@on_both_databases
async def test_a_node_without_the_buckets_of_the_others_is_refused(fleet: Fleet) -> None:
    (fleet.folder / "unmounted").mkdir()
    await fleet.join(fleet.settings("east"))
    away = fleet.settings("west", buckets="unmounted")
    await fleet.refuses(away, r"buckets is 'the folder .*is its disk mounted\?")
    fleet.clock.advance(rows.LOST_SECONDS + 1)
    await fleet.join(away)  # alone
    await fleet.join(away)


async def test_a_node_with_a_store_that_was_used_before_is_refused(fleet: Fleet) -> None:
    """As after a move of the blobs, when one machine has still the old disk."""
    (fleet.folder / "old").mkdir()
    west = fleet.settings("west", "old")
    await fleet.join(west)
    fleet.clock.advance(3600)
    await fleet.join(fleet.settings("east"))
    await fleet.refuses(west, r"has not the blobs of the nodes that run \(east\)")
    fleet.clock.advance(3600)  # whoever is alone is right
    await fleet.join(west)


async def test_a_clock_that_was_ahead_keeps_no_node_away(fleet: Fleet) -> None:
    fleet.clock.now += 3600 * MICROSECONDS
    await fleet.join(fleet.settings("west"))
    fleet.clock.now -= 3600 * MICROSECONDS
    await fleet.join(fleet.settings("east"))
    await fleet.join(fleet.settings("south"))


@on_both_databases
async def test_a_store_that_nobody_can_write_keeps_no_node_away_if_it_has_the_newest_blob(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database knows new generations, of which the full disk takes no note."""
    (fleet.folder / "old").mkdir()
    east, south = fleet.settings("east"), fleet.settings("south", "old")
    await fleet.join(south)
    fleet.clock.advance(3600)
    await fleet.join(east)
    fleet.clock.advance(3600)

    def be_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("registry.blobstore.disk.files.write_generation", be_full)
    await fleet.join(east)
    await fleet.join(fleet.settings("west"))  # no blob says that it is another store
    await fleet.push(east, b"newest")
    await fleet.join(fleet.settings("west"))
    await fleet.refuses(south, "has not the blobs of the nodes that run")


def test_what_must_be_the_same_is_a_setting_and_no_secret() -> None:
    assert {*SHARED_SETTINGS} <= {*NAMES}
    assert len({*SHARED_SETTINGS}) == len(SHARED_SETTINGS)
    secrets = {"database_url", "smtp_url", "root_key_file", "stripe_key_file", "tls_key"}
    assert not secrets & {*SHARED_SETTINGS}
    shared = shared_settings(Settings(data=Path(), limits=Limits(max_blob_bytes=7)))
    assert shared["max_blob_bytes"] == "7"
    assert {*SHARED_SETTINGS, "contents of catalog_file"} == {*shared}

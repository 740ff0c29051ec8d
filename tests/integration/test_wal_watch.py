"""WAL that cannot be archived for long is a fault of its cluster, until it can."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from cloudcore.databases.archive.driver import BackupTarget
from cloudcore.databases.archive.wal import has_files
from cloudcore.databases.archive.wal_watch import WalWatch
from cloudcore.databases.clusters.cluster import ARCHIVE_FAILING
from cloudcore.databases.servers.driver import ServerPaths, ServerSpec
from cloudcore.errors import Unavailable
from tests.cluster_world import EmptyArchive, World, open_world
from tests.databases import on_both_databases
from tests.integration.oauth_world import World as Identity

pytestmark = on_both_databases


class FailingArchive(EmptyArchive):
    """Takes WAL, or not."""

    error: str | None = "the bucket was deleted"

    async def push_wal(self, _target: BackupTarget, spool: Path) -> str | None:
        if self.error is None:
            empty(spool)
        return self.error


@pytest.fixture
async def world(oauth: Identity) -> World:
    return await open_world(oauth)


async def test_wal_that_waits_for_long_is_a_fault_until_it_is_archived(
    world: World, tmp_path: Path
) -> None:
    archive = FailingArchive()
    world.archive = archive
    world.restart()
    made = await world.create(bucket=await world.add_bucket())
    await world.settle(2)

    class Spools:
        def paths(self, spec: ServerSpec) -> ServerPaths:
            assert spec.id == made.id
            return ServerPaths(tmp_path, tmp_path, tmp_path, None)

    driver: Any = Spools()
    watch = WalWatch(world.needs, driver)
    await watch.turn()
    waiting = tmp_path / "000000010000000000000001"
    waiting.touch()
    await watch.turn()
    world.identity.now += 299_000_000
    await watch.turn()
    assert await world.codes(made) == set()
    world.identity.now += 2_000_000
    await watch.turn()
    await watch.turn()
    (fault,) = (await world.get(made)).faults
    assert (fault.code, fault.occurrences) == (ARCHIVE_FAILING, 1)
    assert "the bucket was deleted" in fault.message
    archive.error = None
    await watch.turn()
    assert await world.codes(made) == set()
    assert not waiting.exists()


async def test_a_cluster_whose_wal_cannot_be_pushed_holds_up_no_other(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = FailingArchive()
    archive.error = None
    world.archive = archive
    world.restart()
    bucket = await world.add_bucket()
    made = [await world.create(name, bucket=bucket) for name in ("one", "two")]
    await world.settle(4)
    for each in made:
        (tmp_path / each.id).mkdir()
        (tmp_path / each.id / "000000010000000000000001").touch()
    failing, push = made[0].id, archive.push_wal

    async def push_wal(target: BackupTarget, spool: Path) -> str | None:
        if target.cluster_id == failing:
            raise Unavailable("the endpoint does not answer")
        return await push(target, spool)

    monkeypatch.setattr(archive, "push_wal", push_wal)
    driver = Mock()

    def paths(spec: ServerSpec) -> ServerPaths:
        return ServerPaths(tmp_path, tmp_path, tmp_path / spec.id, None)

    driver.paths = paths
    watch = WalWatch(world.needs, driver)
    for _ in range(2):
        await watch.turn()
        world.identity.now += 301_000_000
    assert [has_files(tmp_path / each.id) for each in made] == [True, False]
    assert [await world.codes(each) for each in made] == [{ARCHIVE_FAILING}, set()]


def empty(spool: Path) -> None:
    for each in spool.iterdir():
        each.unlink()

"""WAL that cannot be archived for long is a fault of its cluster, until it can."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudcore.databases.archive.driver import BackupTarget
from cloudcore.databases.archive.wal_watch import WalWatch
from cloudcore.databases.clusters.cluster import ARCHIVE_FAILING
from cloudcore.databases.servers.driver import ServerPaths, ServerSpec
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


def empty(spool: Path) -> None:
    for each in spool.iterdir():
        each.unlink()

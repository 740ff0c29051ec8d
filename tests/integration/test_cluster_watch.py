"""What looks after the servers of a machine: those that end, those that nobody wants, full ones."""

from __future__ import annotations

import pytest

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.databases.backups import rows
from cloudcore.databases.backups.backup import Backup
from cloudcore.databases.clusters.cluster import Cluster
from cloudcore.databases.clusters.rows import CLUSTERS
from cloudcore.databases.servers.watch import ServerWatch
from cloudcore.db.base import Connection
from cloudcore.errors import Unavailable
from cloudcore.resources.resource import Reference
from tests.cluster_world import World, open_world
from tests.databases import on_both_databases
from tests.integration.oauth_world import World as Identity

DAY = 24 * 3600
MIB = 1024 * 1024


@pytest.fixture
async def world(oauth: Identity) -> World:
    return await open_world(oauth)


@pytest.fixture
async def cluster(world: World) -> Cluster:
    made = await world.running()
    assert (await world.get(made)).status == "active"
    return made


def _add_proved(tx: Connection, made: Cluster) -> str:
    """Add a backup that is being proved, and return its id, which its server has."""
    new = Backup(
        id=uuid7(made.created_at),
        account_id=made.account_id,
        region=made.region,
        created_at=made.created_at,
        updated_at=made.created_at,
        cluster=Reference(made.id, made.name),
        node=made.node,
        kind="base",
        status="succeeded",
        verification="running",
    )
    return rows.BACKUPS.add(tx, new).id


@pytest.fixture
def watch(world: World) -> ServerWatch:
    return ServerWatch(world.needs, world.servers)


async def test_a_server_that_ended_starts_again_after_longer_pauses(
    world: World, cluster: Cluster, watch: ServerWatch
) -> None:
    pauses = []
    for _ in range(9):
        world.machine.running.discard(cluster.id)
        ended_at = world.identity.now
        while cluster.id not in world.machine.running:
            await watch.turn()
            if (await world.get(cluster)).status == "unavailable":
                pauses.append((world.identity.now - ended_at) // MICROSECONDS)
            await world.look(1)
    # The first at once; each look of the work takes a second.
    assert [each for each in pauses if each] == [1, 3, 7, 15, 31, 59, 59]


async def test_a_server_that_ends_again_and_again_is_a_fault_until_it_holds(
    world: World, cluster: Cluster, watch: ServerWatch
) -> None:
    for number in range(1, 6):
        assert await world.codes(cluster) == set(), number
        world.machine.running.discard(cluster.id)
        await watch.turn()
        found = await world.get(cluster)
        assert found.status == "unavailable"
        await world.settle(2, 30)
        await watch.turn()
    found = await world.get(cluster)
    assert (found.status, await world.codes(cluster)) == ("active", {"SERVER_CRASHING"})
    assert "5 times in ten minutes, the last time: FATAL: it broke" in found.faults[0].message
    await world.look(599)
    await watch.turn()
    assert await world.codes(cluster) == {"SERVER_CRASHING"}
    await world.look(601)
    await watch.turn()
    assert await world.codes(cluster) == set()


async def test_what_its_owner_has_stopped_stays_so(
    world: World, cluster: Cluster, watch: ServerWatch
) -> None:
    await world.want(cluster, is_wanted=False)
    await watch.turn()
    assert (await world.get(cluster)).status == "updating", "that is the work's"
    await world.settle(2)
    await watch.turn()
    found = await world.get(cluster)
    assert (found.status, found.applied) == ("stopped", found.generation)
    world.machine.running.add(cluster.id)  # whoever has started it
    await watch.turn()
    assert world.machine.running == set()
    assert (await world.get(cluster)).status == "stopped"


async def test_a_full_server_is_stopped_and_its_owner_has_time_to_delete(
    world: World, cluster: Cluster, watch: ServerWatch
) -> None:
    world.machine.sizes[cluster.id] = 1025 * MIB
    await watch.turn()
    await world.look(600)
    await watch.turn()
    assert world.machine.running == {cluster.id}
    await world.look(1)
    await watch.turn()
    found = await world.get(cluster)
    assert (found.status, world.machine.running) == ("stopped", set())
    assert "it has 1025 MiB, and may have 1024" in found.faults[0].message
    assert await world.codes(cluster) == {"DISK_EXCEEDED"}
    await world.look(60)
    await watch.turn()
    assert world.machine.running == set()
    await world.want(cluster, is_wanted=True)
    await world.settle(2)
    world.machine.sizes[cluster.id] = 1024 * MIB
    for _ in range(2):
        await watch.turn()
        await world.look(601)
    await watch.turn()
    found = await world.get(cluster)
    assert (found.status, await world.codes(cluster)) == ("active", set())


@on_both_databases
async def test_what_no_row_knows_is_ended_and_set_aside_and_what_is_proved_is_not(
    world: World, cluster: Cluster, watch: ServerWatch
) -> None:
    other = await world.running("other")
    await world.database.write(lambda tx: CLUSTERS.remove(tx, other, world.identity.now))
    proved = await world.database.write(_add_proved, cluster)
    world.machine.has[proved] = world.machine.has[other.id]._replace(id=proved)
    await watch.turn()
    assert set(world.machine.has) == {cluster.id, proved}
    assert world.machine.set_aside_ids == [other.id]
    assert world.machine.is_buried


async def test_a_server_whose_data_are_gone_is_not_made_anew(
    world: World, cluster: Cluster, watch: ServerWatch
) -> None:
    world.machine.running.clear()
    world.machine.has.clear()
    for _ in range(2):
        await watch.turn()
        found = await world.settled(cluster, 2)
    assert (found.status, found.faults[0].occurrences) == ("unavailable", 1)
    assert "does not have its data" in found.faults[0].message
    assert world.machine.created == [cluster.id]


async def test_a_server_that_cannot_be_looked_after_holds_up_no_other(
    world: World, cluster: Cluster, watch: ServerWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await world.running("other")

    async def refuses(_names: object) -> None:
        raise Unavailable("the authority is away")

    monkeypatch.setattr(world.authority, "issue", refuses)
    world.machine.certified[cluster.id] = 1
    world.machine.running.discard(other.id)
    await watch.turn()
    assert (await world.get(other)).status == "unavailable"


async def test_a_certificate_is_renewed_after_a_third_of_its_life(
    world: World, cluster: Cluster, watch: ServerWatch
) -> None:
    world.machine.certified[cluster.id] = world.identity.now - 30 * DAY * MICROSECONDS
    await watch.turn()
    assert cluster.id in world.machine.certified
    world.machine.certified[cluster.id] -= 1
    await watch.turn()
    assert cluster.id not in world.machine.certified

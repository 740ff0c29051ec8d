"""Database clusters that are run here: made, started, stopped, deleted, whatever dies meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from unittest.mock import AsyncMock

import pytest
from msgspec import structs

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.databases.archive.driver import BackupFailed
from cloudcore.databases.backups import rows as backup_rows
from cloudcore.databases.backups.backup import Backup
from cloudcore.databases.clusters import clusters, rows
from cloudcore.databases.clusters.cluster import MEMORY, Cluster, Schedule
from cloudcore.databases.clusters.rows import CLUSTERS
from cloudcore.databases.clusters.states import open_password
from cloudcore.databases.clusters.workflow import PLACING, WORK
from cloudcore.databases.servers.driver import ServerFailed
from cloudcore.db.base import Connection, ConstraintViolated
from cloudcore.errors import Conflict, InvalidInput, NotFound, QuotaExceeded
from cloudcore.jobs.queue import LeaseTerms, lease
from cloudcore.jobs.worker import _commit
from cloudcore.nodes import rows as node_rows
from cloudcore.quotas.limits import put_limit
from cloudcore.resources.resource import Reference
from cloudcore.storage.bucket import Bucket
from cloudcore.storage.buckets import BUCKETS
from cloudcore.storage.errors import InvalidBucketState
from cloudcore.storage.tables import BUCKET_ROWS
from tests.cluster_world import PASSWORD, World, open_world
from tests.databases import on_both_databases
from tests.integration.oauth_world import World as Identity
from tests.worked_world import NODE, Died

DAILY = "0 3 * * *"


@pytest.fixture
async def world(oauth: Identity) -> World:
    return await open_world(oauth)


async def test_a_new_cluster_runs_with_the_password_that_was_shown(world: World) -> None:
    made = await world.create()
    assert (made.status, made.node, made.port, made.version) == ("provisioning", NODE, 20_000, None)
    assert PASSWORD.encode() not in (made.secret or b"")
    assert open_password(world.identity.keyring, made) == PASSWORD
    found = await world.settled(made, 2)
    assert (found.status, found.version, found.faults) == ("active", 15, ())
    assert (found.host, found.ca, found.secret) == ("127.0.0.1", "ROOT", None)
    assert world.machine.passwords == {made.id: PASSWORD}
    assert world.machine.running == {made.id}


async def test_it_stops_and_starts_with_the_data_it_has(world: World) -> None:
    made = await world.running()
    assert (await world.want(made, is_wanted=False)).status == "updating"
    found = await world.settled(made, 2)
    assert (found.status, world.machine.running) == ("stopped", set())
    assert await world.want(made, is_wanted=False) == found, "it is so already"
    await world.want(made, is_wanted=True)
    assert (await world.settled(made, 2)).status == "active"
    assert world.machine.created == [made.id]
    assert world.machine.passwords == {made.id: PASSWORD}


async def test_a_new_password_waits_until_the_server_runs(world: World) -> None:
    made = await world.running()
    await world.want(made, is_wanted=False)
    await world.settle(2)
    await world.reset(made, "another-one")
    assert (await world.settled(made, 2)).status == "stopped"
    assert world.machine.passwords == {made.id: PASSWORD}
    await world.want(made, is_wanted=True)
    await world.settle(2)
    assert world.machine.passwords == {made.id: "another-one"}
    assert (await world.get(made)).secret is None


async def test_who_changes_their_mind_gets_what_they_wanted_last(world: World) -> None:
    made = await world.create()
    await world.want(made, is_wanted=False)
    assert ((await world.settled(made, 3)).status, world.machine.created) == ("stopped", [])
    await world.want(made, is_wanted=True)
    await world.want(made, is_wanted=False)
    await world.want(made, is_wanted=True)
    assert (await world.settled(made, 3)).status == "active"


async def test_a_server_that_does_not_start_says_why_and_is_tried_again(world: World) -> None:
    world.machine.fails = "no space left"
    made = await world.running()
    found = await world.get(made)
    assert (found.status, found.faults[0].message) == ("provisioning", "no space left")
    assert await world.codes(made) == {"SERVER_FAILED"}
    world.machine.fails = ""
    found = await world.settled(made, 8)
    assert (found.status, found.faults) == ("active", ())
    world.machine.fails = "again"
    await world.want(made, is_wanted=False)
    await world.settle(2)
    await world.want(made, is_wanted=True)
    assert (await world.settled(made, 2)).status == "unavailable"


async def test_a_machine_that_runs_no_servers_any_more_says_so(world: World) -> None:
    made = await world.running()
    world.restart(is_off=True)
    await world.want(made, is_wanted=False)
    await world.settle(2)
    assert await world.codes(made) == {"DATABASES_OFF"}
    await world.delete(made)
    assert (await world.settled(made, 3)).status == "deleting", "its data are there"
    world.restart()
    await world.settle(20, after=60)
    assert await world.find(made) is None


@on_both_databases
async def test_no_two_clusters_of_a_machine_have_a_port(world: World) -> None:
    made = [await world.create(f"shop-{number}") for number in range(4)]
    assert [each.port for each in made] == [20_000, 20_001, 20_002, 20_003]
    with pytest.raises(Conflict, match="no port left: the operator sets database_ports"):
        await world.create("shop-4")
    await world.delete(made[1])
    await world.settle(3)
    assert (await world.create("shop-4")).port == 20_001
    double = structs.replace(world.new("double"), node=NODE, port=20_002)
    # The database is the arbiter.
    with pytest.raises((Conflict, ConstraintViolated)):
        await world.database.write(CLUSTERS.add, double)


async def test_without_a_machine_for_servers_the_setting_is_named(world: World) -> None:
    await world.claim(NODE, "backups")
    with pytest.raises(Conflict) as refused:
        await world.create()
    assert refused.value.params["setting"] == "database_driver"


@on_both_databases
async def test_memory_and_disk_are_bounded_for_each_account(world: World) -> None:
    now, account = world.identity.now, world.account.id
    await world.database.write(put_limit, account, MEMORY.name, 1000, now)
    await world.create()
    with pytest.raises(QuotaExceeded) as refused:
        await world.create("other")
    assert refused.value.params["quota"] == "database_memory_mb"
    await world.create("small", memory_mb=488)


@on_both_databases
async def test_use_is_of_what_is_wanted_to_run(world: World) -> None:
    made = await world.create()
    await world.create("other", memory_mb=256, cpu_millis=100)
    assert await rows.memory_by_account(world.database) == {world.account.id: 768}
    assert await rows.cpu_by_account(world.database) == {world.account.id: 600}
    await world.want(made, is_wanted=False)
    assert await rows.memory_by_account(world.database) == {world.account.id: 256}


@on_both_databases
async def test_a_cluster_with_backups_goes_only_with_them(world: World) -> None:
    made = await world.running(bucket=await world.add_bucket())
    backup = await _add_backup(world, made)
    with pytest.raises(Conflict) as refused:
        await world.delete(made)
    assert refused.value.params["backup"] == backup.id
    assert (await world.get(made)).status == "active"
    await world.delete(made, is_cascade=True)
    await world.look()
    assert (await world.get(made)).status == "deleting"
    await world.settle(6)
    assert await world.find(made) is None
    assert await world.database.read(_backups, made) == []
    assert world.archive.removed == [made.id], "and all else that the bucket has of it"
    assert (world.machine.has, world.machine.running) == ({}, set())


async def test_a_deletion_waits_for_a_server_and_a_bucket_that_cannot_be_emptied(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await world.running(bucket=await world.add_bucket())
    await world.delete(made)
    for part, failure, code in (
        (world.machine, ServerFailed("the disk fails"), "SERVER_FAILED"),
        (world.archive, BackupFailed("the bucket is away"), "BACKUP_FAILED"),
    ):
        name = "remove" if part is world.machine else "remove_all"
        monkeypatch.setattr(part, name, AsyncMock(side_effect=failure))
        await world.settle(6, after=60)
        assert (await world.get(made)).status == "deleting"
        assert code in await world.codes(made)
        monkeypatch.undo()
        if part is world.machine:
            assert made.id in world.machine.has
            monkeypatch.setattr(world.archive, "remove_all", AsyncMock(side_effect=failure))
    await world.settle(20, after=3600)
    assert await world.find(made) is None
    assert (world.machine.has, world.archive.removed) == ({}, [made.id])


async def test_a_bucket_is_the_account_s_own_and_needs_the_right_to_write(world: World) -> None:
    await world.add_bucket()
    asked: list[tuple[str, str]] = []

    def right_to(action: str) -> Callable[[str], None]:
        return lambda crn: asked.append((action, crn))

    new = world.new(bucket="backups")
    made = await world.database.write(clusters.create, new, world.terms, right_to)
    assert made.bucket_name == "backups"
    crn = f"crn:storage:local:{world.account.id}:bucket/backups"
    writes = ("storage:PutObject", f"{crn}/entrepot/{made.id}")
    assert asked == [("storage:GetBucket", crn), writes]
    with pytest.raises(NotFound):
        await world.create("other", bucket="missing")


@on_both_databases
async def test_a_bucket_is_not_deleted_while_a_cluster_needs_it(world: World) -> None:
    bucket = await _bucket(world)
    first = await world.running("shop", bucket=bucket.name)
    second = await world.running("other", bucket=bucket.name)

    async def refused() -> str:
        now = world.identity.now
        with pytest.raises(InvalidBucketState) as raised:
            await world.database.write(BUCKETS.remove, bucket, now)
        return str(raised.value.params["user"])

    assert await refused() == "database cluster shop"
    with pytest.raises(ConstraintViolated):  # also if nobody had looked
        await world.database.write(BUCKET_ROWS.remove, bucket, world.identity.now)
    await world.delete(first)
    assert await refused() == "database cluster shop", "its files are there yet"
    await world.settle(4)
    assert await refused() == "database cluster other"
    await world.delete(second)
    await world.settle(4)
    await world.database.write(BUCKETS.remove, bucket, world.identity.now)


@on_both_databases
async def test_of_a_new_cluster_and_the_deletion_of_its_bucket_one_is_refused(
    world: World,
) -> None:
    for number in range(8):
        await world.claim()  # time passes
        bucket = await _bucket(world, f"backups-{number}")
        made, gone = await asyncio.gather(
            world.create(f"shop-{number}", bucket=bucket.name),
            world.database.write(BUCKETS.remove, bucket, world.identity.now),
            return_exceptions=True,
        )
        found = await world.database.read(BUCKET_ROWS.find, world.account.id, bucket.id)
        if isinstance(made, Cluster):
            assert isinstance(gone, InvalidBucketState)
            assert found is not None
            await world.delete(made)
            await world.settle(3)
        else:
            assert isinstance(made, NotFound)
            assert (gone, found) == (None, None)


async def _bucket(world: World, name: str = "backups") -> Bucket:
    await world.add_bucket(name)
    find, of = BUCKET_ROWS.find_named, (world.account.id, "local")
    found = await world.database.read(find, *of, name)
    assert found is not None
    return found


async def test_what_is_being_deleted_is_not_changed(world: World) -> None:
    made = await world.running()
    await world.delete(made)
    for change in (world.want(made, is_wanted=False), world.reset(made, "x")):
        with pytest.raises(Conflict, match="is being deleted"):
            await change
    await world.delete(made)
    await world.settle(4)
    with pytest.raises(NotFound):
        await world.want(made, is_wanted=False)


@on_both_databases
async def test_a_lost_machine_makes_its_clusters_unavailable(world: World) -> None:
    made, stopped = await world.create(), await world.create("stopped")
    await world.want(stopped, is_wanted=False)
    await world.settle(2)
    await world.look(120)
    clock, database = (lambda: world.identity.now), world.database
    await node_rows.look(database, clock, [PLACING])
    for each in (made, stopped):
        assert (await world.get(each)).status == "unavailable"
        assert await world.codes(each) == {"NODE_LOST"}
    await world.claim()
    await node_rows.look(database, clock, [PLACING])
    assert await world.codes(made) == set()
    assert (await world.settled(stopped, 2)).status == "stopped"


async def test_schedules_need_a_bucket_and_moments(world: World) -> None:
    for fields, words in (
        ({"base_cron": DAILY}, "need a bucket"),
        ({"base_cron": "0 3 * *  "}, "five fields"),
        ({"verify_cron": "0 3 31 2 *"}, "no such day"),
    ):
        schedule = {"schedule": Schedule(**fields)}
        bucket = {} if words == "need a bucket" else {"bucket": "backups"}
        with pytest.raises(InvalidInput, match=words):
            await world.create("scheduled", **schedule, **bucket)


@on_both_databases
@pytest.mark.parametrize("time", [1, 2, 3])
async def test_a_death_at_any_place_loses_nothing_and_makes_nothing_twice(
    world: World, time: int
) -> None:
    """Die at each place that a process comes to, when it comes there this time; then go on."""
    world.death.time = time
    made = await world.create()
    await _outlive(world, "active", made)
    for is_wanted in (False, True, False, True):
        await world.want(made, is_wanted=is_wanted)
        await _outlive(world, "active" if is_wanted else "stopped", made)
    found = await world.get(made)
    assert (found.faults, found.secret) == ((), None)
    assert world.machine.running == {made.id}
    assert world.machine.passwords == {made.id: PASSWORD}
    await world.delete(made)
    await _outlive(world, "", made)
    assert world.machine.has == {}
    assert world.machine.created == [made.id]
    often = [{"create", "remove", "password", "stop", "start"}, {"stop", "start"}, {"start"}]
    died = {f"{when} {what}" for when in ("before", "after") for what in often[time - 1]}
    assert died <= set(world.death.died)


async def _outlive(world: World, status: str, made: Cluster) -> None:
    """Take steps until a cluster has a status, or is gone; after a death, the next one goes on."""
    for _ in range(40):
        world.identity.now += 20 * MICROSECONDS
        try:
            await _take_step(world)
        except Died:
            world.restart()
        found = await world.find(made)
        if (found.status if found else "") == status:
            return
    raise AssertionError(f"it is not {status!r}")


async def _take_step(world: World) -> None:
    kind, now = WORK.job_kind(world.needs, NODE), world.identity.now
    jobs = await world.database.write(lease, LeaseTerms("t", now, 1, {kind.name}), now)
    for job in jobs:
        outcome = await kind.step(job)
        world.death.come_to("before the outcome is stored")
        await world.database.write(partial(_commit, job, outcome, now, now), keep=False)
        world.death.come_to("after the outcome is stored")


async def _add_backup(world: World, made: Cluster) -> Backup:
    """Add a backup that has succeeded."""
    now = world.identity.now
    new = Backup(
        id=uuid7(now),
        account_id=made.account_id,
        region=made.region,
        created_at=now,
        updated_at=now,
        cluster=Reference(made.id, made.name),
        node=made.node,
        kind="base",
        status="succeeded",
        label="20260101-000000F",
        completed_at=now,
    )
    return await world.database.write(backup_rows.BACKUPS.add, new)


def _backups(tx: Connection, made: Cluster) -> list[Backup]:
    return [*backup_rows.succeeded(tx, made.account_id, made.id)]

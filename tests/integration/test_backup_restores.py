"""Backups are restored into new clusters, proved in servers of their own, and made by schedule."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from cloudcore.databases.archive.driver import BackupFailed
from cloudcore.databases.backups import restore, schedules
from cloudcore.databases.clusters.cluster import ARCHIVE_FAILING, Cluster, Retention, Schedule
from cloudcore.databases.clusters.rows import CLUSTERS
from cloudcore.databases.servers.driver import ServerFailed
from cloudcore.db.base import Database
from cloudcore.jobs.faults import Fault
from cloudcore.nodes.node import NODE_LOST
from tests.backup_world import NODE, BackupWorld, open_backups
from tests.databases import on_both_databases

HOUR = 3600


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> AsyncIterator[BackupWorld]:
    async with open_backups(database, tmp_path) as opened:
        yield opened


@pytest.fixture
async def cluster(world: BackupWorld) -> Cluster:
    return await world.add_cluster()


async def _asked(
    world: BackupWorld, cluster: Cluster, body: dict[str, Any], one: str = ""
) -> tuple[int, dict[str, Any]]:
    answer = await world.ask("POST", f"/{cluster.id}{one}/restore", body)
    return answer.status_code, answer.json()


async def _copied(
    world: BackupWorld, cluster: Cluster, backup: Mapping[str, Any]
) -> tuple[str, Callable[[], Awaitable[Any]]]:
    """Ask for a copy of a backup; return its path, and what shows its record."""
    status, made = await _asked(world, cluster, {"name": "copy"}, f"/backups/{backup['id']}")
    assert status == 202, made
    path = f"/{made['cluster']['id']}"

    async def show() -> Any:  # noqa: ANN401 - a record
        return (await world.ask("GET", path)).json()["cluster"]

    return path, show


@on_both_databases
async def test_a_backup_is_restored_into_a_new_cluster(
    world: BackupWorld, cluster: Cluster
) -> None:
    backup = await world.made(cluster)
    status, made = await _asked(world, cluster, {"name": "copy"}, f"/backups/{backup['id']}")
    assert status == 202, made
    assert made["password"]
    found = made["cluster"]
    assert (found["name"], found["status"], found["version"]) == ("copy", "provisioning", 15)
    assert found["size"] == {"memory_mb": 256, "cpu_millis": 500, "disk_mb": 1024}
    assert found["source"] == {
        "cluster_id": cluster.id,
        "cluster_name": "shop",
        "backup_id": backup["id"],
    }
    whole = await world.ask("DELETE", f"/{cluster.id}?cascade=true")
    for refused in (await world.delete(backup), whole):
        assert refused.status_code == 409
        assert refused.json()["error"]["params"] == {
            "reason": "is_being_restored",
            "cluster": "copy",
        }
    await world.work()
    found = (await world.ask("GET", f"/{found['id']}")).json()["cluster"]
    assert found["status"] == "active"
    label = world.archive.backups[cluster.id][0].label
    assert f"restore {label} None" in world.archive.calls
    assert (await world.ask("DELETE", f"/{cluster.id}?cascade=true")).status_code == 202
    late = await _asked(world, cluster, {"name": "late"}, f"/backups/{backup['id']}")
    assert late[0] == 404, "it is being deleted"


async def test_what_is_being_restored_is_kept_beyond_the_number_to_keep(world: BackupWorld) -> None:
    cluster = await world.add_cluster("kept", retention=Retention(base_count=1))
    first = await world.made(cluster)
    world.servers.failures.append(ServerFailed("FATAL: no memory"))
    await _asked(world, cluster, {"name": "copy"}, f"/backups/{first['id']}")
    for kept in ([first], []):
        newest = await world.made(cluster)
        await world.work(after=300)  # the restore is tried again, and succeeds
        left = [each["id"] for each in await world.list(cluster)]
        assert left == [each["id"] for each in (*kept, newest)]


async def test_a_restore_to_a_moment_takes_the_newest_backup_before_it(
    world: BackupWorld, cluster: Cluster
) -> None:
    first = await world.made(cluster)
    world.clock.pass_seconds(20)
    second = await world.made(cluster)
    world.clock.pass_seconds(20)
    for moment, backup in ((first["completed_at"], first), (second["completed_at"], second)):
        body = {"name": f"at-{backup['id'][-4:]}", "target_time": moment}
        status, made = await _asked(world, cluster, body)
        assert status == 202, made
        assert made["cluster"]["source"]["backup_id"] == backup["id"]
        assert made["cluster"]["source"]["target_time"] == moment
    await world.work()
    restores = [each for each in world.archive.calls if each.startswith("restore")]
    assert len(restores) == 2
    assert all(not each.endswith("None") for each in restores)


async def test_a_moment_out_of_the_window_is_a_conflict_that_says_the_window(
    world: BackupWorld, cluster: Cluster
) -> None:
    bodies = [{"name": "copy", "target_time": f"{year}-01-01T00:00:00Z"} for year in (2000, 2100)]
    for body in bodies:
        status, refused = await _asked(world, cluster, body)
        assert (status, refused["error"]["params"]["reason"]) == (409, "out_of_window")
    backup = await world.made(cluster)
    for body in bodies:
        status, refused = await _asked(world, cluster, body)
        assert status == 409
        assert refused["error"]["params"]["earliest"] == backup["completed_at"]
        assert refused["error"]["params"]["latest"] in refused["error"]["message"]


async def test_what_cannot_be_restored_is_refused(world: BackupWorld, cluster: Cluster) -> None:
    backup = {"backup": (await world.made(cluster))["id"]}
    cases: list[tuple[dict[str, Any], int]] = [
        ({}, 400),
        ({"name": "copy"}, 400),
        ({"name": "Not A Name", **backup}, 400),
        ({"name": "copy", **backup, "target_time": "2030-01-01T00:00:00Z"}, 400),
        ({"name": "copy", "backup": "0189c000-0000-7000-8000-00000000000f"}, 404),
        ({"name": "copy", "backup": "no-id"}, 404),
        ({"name": "shop", **backup}, 409),
        ({"name": "copy", **backup, "bucket": "missing"}, 404),
        ({"name": "copy", **backup, "size": {"memory_mb": 1}}, 400),
        ({"name": "copy", **backup, "tags": {"": "x"}}, 400),
        ({"name": "copy", **backup, "description": "x" * 1001}, 400),
    ]
    for body, status in cases:
        found, answer = await _asked(world, cluster, body)
        assert found == status, (body, answer)


async def test_a_disk_that_a_backup_does_not_fit_into_is_refused(world: BackupWorld) -> None:
    small = await world.add_cluster("small", disk_mb=2)  # it was full, and a backup has all of it
    backup = await world.made(small)
    one = f"/backups/{backup['id']}"
    status, refused = await _asked(world, small, {"name": "copy"}, one)
    assert (status, refused["error"]["params"]["field"]) == (400, "size.disk_mb")
    assert "at least 3" in refused["error"]["message"]
    status, _ = await _asked(world, small, {"name": "copy", "size": {}}, one)
    assert status == 202


async def test_a_backup_that_did_not_succeed_is_not_restored(
    world: BackupWorld, cluster: Cluster
) -> None:
    backup = await world.back_up(cluster)
    one = f"/backups/{backup['id']}"
    status, refused = await _asked(world, cluster, {"name": "copy"}, one)
    assert (status, refused["error"]["params"]["reason"]) == (409, "not_succeeded")
    answer = await world.ask("POST", f"/{cluster.id}{one}/verify")
    assert answer.status_code == 409


async def test_a_restore_that_fails_is_a_fault_and_begins_again(
    world: BackupWorld, cluster: Cluster
) -> None:
    backup = await world.made(cluster)
    world.archive.failures.append(BackupFailed("pgBackRest failed: it was ended by signal 9"))
    world.servers.failures.append(ServerFailed("FATAL: could not locate a valid checkpoint record"))
    path, show = await _copied(world, cluster, backup)
    for words in ("it was ended by signal 9", "checkpoint"):
        await world.work(after=300)
        found = await show()
        assert found["status"] == "provisioning"
        assert words in found["faults"][0]["message"]
    await world.work(after=300)
    found = await show()
    assert (found["status"], found["faults"]) == ("active", [])
    assert path[1:] in world.servers.removed  # what was there half


async def _at_a_moment(world: BackupWorld, cluster: Cluster) -> Callable[[], Awaitable[Any]]:
    """Let a cluster be restored to a moment; return what shows how far that is."""
    backup = await world.made(cluster)
    world.servers.has_later_wal = False
    body = {"name": "copy", "target_time": backup["completed_at"]}
    _, made = await _asked(world, cluster, body)

    async def show() -> Any:  # noqa: ANN401 - a record
        path = f"/{made['cluster']['id']}"
        return (await world.ask("GET", path)).json()["cluster"]

    return show


async def test_a_server_that_is_restored_to_a_moment_gives_away_its_wal_until_then(
    world: BackupWorld, cluster: Cluster
) -> None:
    show = await _at_a_moment(world, cluster)
    await world.work()
    assert world.servers.switched == [cluster.id]
    found = await show()
    assert (found["status"], found["faults"][0]["code"]) == ("provisioning", "SERVER_FAILED")
    assert "is waited for" in found["faults"][0]["message"]
    world.servers.has_later_wal = True
    await world.work(after=60)
    assert ((await show())["status"], (await show())["faults"]) == ("active", [])


async def test_a_stopped_server_that_gave_away_all_wal_is_restored_to_its_end(
    world: BackupWorld, cluster: Cluster
) -> None:
    show = await _at_a_moment(world, cluster)
    await world.ask("POST", f"/{cluster.id}/stop")
    await world.work()
    await world.work(after=60)
    assert world.servers.switched == []
    assert (await show())["status"] == "active"


async def _with(world: BackupWorld, cluster: Cluster, **changes: object) -> None:
    changed = structs.replace(await world.cluster(cluster), **changes)
    await world.database.write(CLUSTERS.save, changed)


@pytest.mark.parametrize("node", [NODE, "elsewhere"])
async def test_of_a_server_that_cannot_be_asked_wal_is_waited_for_until_all_must_be_there(
    world: BackupWorld, cluster: Cluster, node: str
) -> None:
    show = await _at_a_moment(world, cluster)
    await _with(world, cluster, node=node, status="unavailable")
    await world.work(after=300)
    assert (await show())["status"] == "provisioning"
    failing = Fault(ARCHIVE_FAILING, "no room", 1, 1, 1)
    await _with(world, cluster, faults=(failing,))
    await world.work(after=300)
    assert (await show())["status"] == "provisioning"
    await _with(world, cluster, faults=())
    await world.work(after=300)
    assert (await show())["status"] == "active"


async def test_of_a_machine_that_is_lost_no_more_wal_is_waited_for(
    world: BackupWorld, cluster: Cluster
) -> None:
    show = await _at_a_moment(world, cluster)
    lost = Fault(NODE_LOST, "it was not seen", 1, 1, 1)
    await _with(world, cluster, node="elsewhere", status="unavailable", faults=(lost,))
    await world.work()
    assert (await show())["status"] == "active"


async def test_a_backup_stays_while_the_restore_of_it_is_stopped(
    world: BackupWorld, cluster: Cluster
) -> None:
    backup = await world.made(cluster)
    world.servers.failures.append(ServerFailed("FATAL: no memory"))
    copy, show = await _copied(world, cluster, backup)
    await world.work()
    for act, status, deleted in (("stop", "stopped", 409), ("start", "active", 202)):
        await world.ask("POST", f"{copy}/{act}")
        await world.work()
        assert (await show())["status"] == status
        assert (await world.delete(backup)).status_code == deleted


async def test_a_restore_that_goes_on_for_ever_holds_up_neither_a_stop_nor_a_deletion(
    world: BackupWorld, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore, "_LOOK_SECONDS", 0.01)
    backup = await world.made(cluster)
    world.servers.may_recover.clear()
    copy, show = await _copied(world, cluster, backup)
    for method, path in (("POST", f"{copy}/stop"), ("DELETE", copy)):
        world.servers.recovering.clear()
        working = asyncio.create_task(world.work())
        await world.servers.recovering.wait()
        assert (await world.ask(method, path)).status_code == 202
        await working
        await world.work(after=60)
        if method == "POST":
            assert (await show())["status"] == "stopped"
            await world.ask("POST", f"{copy}/start")
    assert (await world.ask("GET", copy)).status_code == 404
    assert copy[1:] not in world.servers.servers
    assert (await world.delete(backup)).status_code == 202


async def test_a_verification_restores_a_backup_into_a_server_of_its_own(
    world: BackupWorld, cluster: Cluster
) -> None:
    backup = await world.made(cluster)
    unproved = {"verification": "never", "verified_at": None, "verified_by": None}
    assert {name: backup[name] for name in unproved} == unproved
    path = f"/{cluster.id}/backups/{backup['id']}/verify"

    async def verified() -> tuple[str, str]:
        """Verify it, with no server left; return the outcome and what it was verified by."""
        answer = await world.ask("POST", path)
        assert (answer.status_code, answer.json()["backup"]["verification"]) == (202, "pending")
        await world.work()
        assert world.servers.servers == {}
        found = await world.show(backup)
        return found["verification"], found["verified_by"]

    assert await verified() == ("succeeded", "checksums")
    proved = (await world.show(backup))["verified_at"]
    assert proved is not None
    world.servers.bad_pages = True
    world.clock.pass_seconds(HOUR)
    assert await verified() == ("failed", "checksums")
    found = await world.show(backup)
    assert found["verified_at"] == proved, "the last proof"
    (fault,) = found["faults"]
    assert fault["code"] == "VERIFICATION_FAILED"
    assert "checksum" in fault["message"]
    world.servers.bad_pages, world.servers.proof = False, "rows"
    assert await verified() == ("succeeded", "rows")
    found = await world.show(backup)
    assert found["faults"] == []
    assert found["verified_at"] > proved


async def test_verification_and_backups_of_a_cluster_take_turns(
    world: BackupWorld, cluster: Cluster
) -> None:
    backup = await world.made(cluster)
    await world.back_up(cluster)
    await world.ask("POST", f"/{cluster.id}/backups/{backup['id']}/verify")
    for _ in range(3):  # whoever found the other at it asks again later
        await world.work()
        world.clock.pass_seconds(60)
    assert (await world.show(backup))["verification"] == "succeeded"
    assert [each["status"] for each in await world.list(cluster)] == ["succeeded"] * 2


@on_both_databases
async def test_schedules_make_backups_when_it_is_time(world: BackupWorld) -> None:
    schedule = Schedule(base_cron="0 */2 * * *", incremental_cron="30 * * * *")
    cluster = await world.add_cluster("nightly", schedule=schedule)
    await world.take_turns()
    assert await world.list(cluster) == []
    begun = world.clock.now
    for _ in range(6 * 2):
        world.clock.pass_seconds(HOUR / 2)
        await world.take_turns()
        await world.take_turns()  # another process looks too
    found = await world.list(cluster)
    assert {each["trigger"] for each in found} == {"schedule"}
    bases = [each for each in found if each["kind"] == "base"]
    assert len(bases) == 3
    first = found.index(bases[0])
    assert first == 0  # before it no incremental one could be made
    assert len(found) - len(bases) in (4, 5)
    assert world.clock.now - begun < 7 * HOUR * 1_000_000


async def test_a_schedule_that_cannot_be_followed_is_a_fault_of_the_cluster(
    world: BackupWorld,
) -> None:
    cluster = await world.add_cluster("early", schedule=Schedule(incremental_cron="0 * * * *"))
    for _ in range(2):
        world.clock.pass_seconds(HOUR)
        await world.take_turns()
    (fault,) = (await world.cluster(cluster)).faults
    assert (fault.code, fault.occurrences) == ("BACKUP_FAILED", 2)
    assert "base" in fault.message


async def test_a_schedule_proves_the_newest_backup(world: BackupWorld) -> None:
    cluster = await world.add_cluster("proved", schedule=Schedule(verify_cron="0 * * * *"))
    old = await world.made(cluster)
    new = await world.made(cluster)
    world.clock.pass_seconds(HOUR)
    await world.take_turns()
    assert (await world.show(new))["verification"] == "succeeded"
    assert (await world.show(old))["verification"] == "never"


async def test_neither_downtime_nor_a_backup_that_waits_lets_many_queue_up(
    world: BackupWorld,
) -> None:
    late = await world.add_cluster("late", schedule=Schedule(base_cron="0 * * * *"))
    world.clock.pass_seconds(30 * HOUR)
    await world.take_turns()
    await world.take_turns()
    assert len(await world.list(late)) == 1
    busy = await world.add_cluster("busy", schedule=Schedule(base_cron="* * * * *"))
    for _ in range(3):
        world.clock.pass_seconds(60)
        await schedules.request_due_backups(world.needs)
    assert [each["status"] for each in await world.list(busy)] == ["pending"]


async def test_a_changed_schedule_holds_from_then_on(world: BackupWorld, cluster: Cluster) -> None:
    body = {"schedule": {"base_cron": "0 * * * *"}, "retention": {"base_count": 1}}
    answer = await world.ask("PATCH", f"/{cluster.id}", body)
    assert answer.status_code == 200, answer.text
    for _ in range(3):
        world.clock.pass_seconds(HOUR)
        await world.take_turns()
    await world.work(after=120)
    assert len(await world.list(cluster)) == 1
    answer = await world.ask("PATCH", f"/{cluster.id}", {"schedule": None})
    assert answer.status_code == 200
    before = await world.list(cluster)
    world.clock.pass_seconds(3 * HOUR)
    await world.take_turns()
    assert await world.list(cluster) == before

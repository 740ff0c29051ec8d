"""Backups of clusters: the rules of their requests, their queue, their faults and their end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from cloudcore.clock import uuid7
from cloudcore.databases.archive.driver import BackupFailed, BackupProgramMissing, BucketGone
from cloudcore.databases.backups import rows as backup_rows
from cloudcore.databases.backups.backup import FAILED, SUCCEEDED
from cloudcore.databases.backups.workflow import PLACING
from cloudcore.databases.clusters.cluster import Cluster
from cloudcore.db.base import Database
from cloudcore.jobs.worker import JobWorker
from cloudcore.nodes.rows import claim, look
from tests.backup_world import KEEP_TWO, SIZE, BackupWorld, open_backups
from tests.control_plane import ACCOUNT
from tests.databases import on_both_databases
from tests.jobs import SWIFT, end_leases, running, until


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> AsyncIterator[BackupWorld]:
    async with open_backups(database, tmp_path) as opened:
        yield opened


@pytest.fixture
async def cluster(world: BackupWorld) -> Cluster:
    return await world.add_cluster()


def at_work(world: BackupWorld) -> AbstractAsyncContextManager[JobWorker]:
    """Return a context in which a worker of the machine runs."""
    return running(JobWorker(world.database, world.kinds, pace=SWIFT, clock=world.clock))


async def test_kinds_and_their_aliases_are_stored_as_base_and_incremental(
    world: BackupWorld, cluster: Cluster
) -> None:
    await world.made(cluster)
    for content, kind in (
        (b"", "base"),
        (b"null", "base"),
        (b"{}", "base"),
        (b'{"kind": null}', "base"),
        (b'{"kind": ""}', "base"),
        (b'{"kind": "base"}', "base"),
        (b'{"kind": "full"}', "base"),
        (b'{"kind": "incremental"}', "incremental"),
        (b'{"kind": "incr"}', "incremental"),
    ):
        world.clock.pass_seconds(1)
        answer = await world.ask("POST", f"/{cluster.id}/backups", content)
        assert answer.status_code == 202, answer.text
        made = answer.json()["backup"]
        assert answer.headers["Location"] == f"/v1/clusters/{cluster.id}/backups/{made['id']}"
        expected: dict[str, Any] = {
            "crn": f"crn:database:local:{ACCOUNT}:backup/{made['id']}",
            "cluster": {"id": cluster.id, "crn": cluster.crn, "name": "shop"},
            "kind": kind,
            "trigger": "manual",
            "status": "pending",
            "progress": 0,
            **dict.fromkeys(("size_bytes", "started_at", "completed_at")),
            "verification": "never",
            "faults": [],
        }
        assert {name: made[name] for name in expected} == expected, content
        found = await world.worked(made)
        assert (found["kind"], found["status"], found["progress"]) == (kind, "succeeded", 100)
        assert (found["size_bytes"], found["stored_bytes"]) == (SIZE, SIZE // 3)


async def test_other_kinds_of_backup_are_refused(world: BackupWorld, cluster: Cluster) -> None:
    path = f"/{cluster.id}/backups"
    for kind in ("Base", "FULL", "differential", "diff", " base", "none", "0"):
        for answer in (
            await world.ask("POST", path, {"kind": kind}),
            await world.ask("GET", f"{path}?kind={kind}"),
        ):
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "INVALID_INPUT")


async def test_the_list_takes_aliases_of_kinds_too(world: BackupWorld, cluster: Cluster) -> None:
    base = await world.made(cluster)
    incremental = await world.made(cluster, "incr")
    found = await world.database.read(backup_rows.stored_bytes)
    assert found == {ACCOUNT: 2 * (SIZE // 3)}, "their account uses the bytes that they added"
    await world.made(await world.add_cluster("other"))

    async def ids(query: str) -> list[str]:
        return [each["id"] for each in await world.list(cluster, query)]

    assert await ids("") == await ids("?kind=") == [base["id"], incremental["id"]]
    assert await ids("?kind=full") == await ids("?kind=base") == [base["id"]]
    assert await ids("?kind=incr") == await ids("?kind=incremental") == [incremental["id"]]
    meta = (await world.ask("GET", f"/{cluster.id}/backups?limit=1")).json()["meta"]
    assert meta["total"] == 2
    assert await ids(f"?limit=1&marker={meta['marker']}") == [incremental["id"]]


async def test_an_incremental_backup_without_a_succeeded_base_is_a_conflict(
    world: BackupWorld, cluster: Cluster
) -> None:
    async def asked() -> tuple[int, str]:
        answer = await world.ask("POST", f"/{cluster.id}/backups", {"kind": "incremental"})
        if answer.status_code == 202:
            return 202, answer.json()["backup"]["base_id"]
        return answer.status_code, answer.json()["error"]["params"]["reason"]

    assert await asked() == (409, "no_base")
    await world.back_up(cluster)  # it has not succeeded yet
    assert await asked() == (409, "no_base")
    await world.fail()
    assert [each["status"] for each in await world.list(cluster)] == ["failed"]
    assert await asked() == (409, "no_base")
    base = await world.made(cluster)
    assert await asked() == (202, base["id"])


async def test_an_incremental_backup_is_never_made_as_a_base(
    world: BackupWorld, cluster: Cluster
) -> None:
    await world.made(cluster)
    asked = await world.back_up(cluster, "incremental")
    world.archive.backups.clear()  # the base is gone from the bucket
    found = await world.worked(asked, after=300, times=3)
    assert (found["kind"], found["status"]) == ("incremental", "failed")
    assert "no prior backup" in found["faults"][0]["message"]
    assert world.archive.backups.get(cluster.id, []) == []


@on_both_databases
async def test_backups_of_a_cluster_go_one_at_a_time_in_the_order_of_their_requests(
    world: BackupWorld, cluster: Cluster
) -> None:
    other = await world.add_cluster("other")
    asked = [await world.back_up(cluster) for _ in range(4)]
    aside = await world.back_up(other)
    world.archive.may_end.clear()
    async with at_work(world):

        async def both_run() -> bool:
            return len(world.archive.calls) == 2

        await until(both_run)
        assert sorted(world.archive.calls) == sorted(
            [f"base {asked[0]['id']}", f"base {aside['id']}"]
        )
        states = [(await world.show(each))["status"] for each in asked]
        assert states == ["running", "pending", "pending", "pending"]
        world.archive.may_end.set()
        await world.until(asked[-1], status="succeeded")
    of_cluster = [each for each in world.archive.calls if aside["id"] not in each]
    assert of_cluster == [f"base {each['id']}" for each in asked]
    assert world.archive.most_at_once == 2  # one of each cluster


@on_both_databases
async def test_the_database_lets_only_one_backup_of_a_cluster_begin(
    world: BackupWorld, cluster: Cluster
) -> None:
    first, second = [await world.back_up(cluster) for _ in range(2)]
    rows = {each["id"]: each for each in (first, second)}
    found = await world.database.read(backup_rows.waiting, ACCOUNT, cluster.id)
    assert [each.id for each in found] == list(rows)
    take = backup_rows.take_lock
    assert not await world.database.write(take, found[1])  # the first has not begun
    assert await world.database.write(take, found[0])
    assert await world.database.write(take, found[0])  # again, after a death
    begun = structs.replace(found[0], status="running")
    await world.database.write(backup_rows.BACKUPS.save, begun)
    assert not await world.database.write(take, found[1])  # although no other is pending
    await world.database.write(backup_rows.release_lock, found[0])
    assert await world.database.write(take, found[1])


async def test_a_failure_is_a_fault_with_the_programs_last_lines_and_success_clears_it(
    world: BackupWorld, cluster: Cluster
) -> None:
    words = "look at the bucket's limit: ERROR: [082]: quota exceeded"
    world.archive.failures.append(BackupFailed(words))
    asked = await world.back_up(cluster)
    found = await world.worked(asked)
    assert found["status"] == "running"
    fault = found["faults"][0]
    assert (fault["code"], fault["message"], fault["occurrences"]) == ("BACKUP_FAILED", words, 1)
    assert (await world.worked(asked, after=300))["status"] == "succeeded"
    assert (await world.show(asked))["faults"] == []


async def test_the_same_failure_again_counts_on_one_fault(
    world: BackupWorld, cluster: Cluster
) -> None:
    world.archive.failures += [BackupFailed("the bucket is full")] * 6
    asked = await world.back_up(cluster)
    found = await world.worked(asked, after=300, times=6)
    assert found["status"] == "failed"
    assert found["completed_at"] is not None
    (fault,) = found["faults"]
    assert (fault["occurrences"], fault["severity"]) == (3, "error")
    assert fault["first_at"] < fault["last_at"]
    assert len(world.archive.calls) == 3  # a full bucket is no loop
    again = await world.back_up(cluster)
    assert (await world.worked(again, after=300, times=6))["status"] == "failed"
    (of_cluster,) = (await world.cluster(cluster)).faults
    assert (of_cluster.code, of_cluster.occurrences) == ("BACKUP_FAILED", 2)
    await world.made(cluster)
    assert (await world.cluster(cluster)).faults == ()


async def test_a_program_missing_on_the_machine_is_reported_at_once(
    world: BackupWorld, cluster: Cluster
) -> None:
    asked = await world.back_up(cluster)
    world.archive.missing = "pgbackrest is not installed: install the package pgbackrest"
    answer = await world.ask("POST", f"/{cluster.id}/backups")
    assert (answer.status_code, answer.json()["error"]["message"]) == (409, world.archive.missing)
    world.archive.failures.append(BackupProgramMissing(world.archive.missing))
    found = await world.worked(asked)
    assert found["status"] == "failed"  # it does not try again
    assert found["faults"][0]["message"] == world.archive.missing


@on_both_databases
async def test_a_base_that_incremental_backups_need_is_a_conflict_or_goes_with_them(
    world: BackupWorld, cluster: Cluster
) -> None:
    base = await world.made(cluster)
    needing = [await world.made(cluster, "incremental") for _ in range(2)]
    later = await world.made(cluster)
    assert [each["base_id"] for each in needing] == [base["id"]] * 2
    assert await world.needed_by(base) == needing[0]["id"]
    # The second has what changed since the first.
    assert await world.needed_by(needing[0]) == needing[1]["id"]
    await world.work()
    assert len(world.archive.backups[cluster.id]) == 4
    assert (await world.delete(base, "?cascade=true")).status_code == 202
    assert [each["status"] for each in await world.list(cluster)] == ["deleting"] * 3 + [
        "succeeded"
    ]
    await world.work()
    await world.work(after=120)
    assert [each["id"] for each in await world.list(cluster)] == [later["id"]]
    assert [each.backup_id for each in world.archive.backups[cluster.id]] == [later["id"]]
    answer = await world.ask("GET", f"/{cluster.id}/backups/{base['id']}")
    assert answer.status_code == 404


async def test_an_incremental_backup_that_is_pending_needs_its_base_and_the_last_goes_alone(
    world: BackupWorld, cluster: Cluster
) -> None:
    base = await world.made(cluster)
    first, second = [await world.made(cluster, "incremental") for _ in range(2)]
    for gone in (second, first, base):
        assert (await world.delete(gone)).status_code == 202
        await world.work()
        assert gone["id"] not in [each["id"] for each in await world.list(cluster)]
    assert world.archive.backups[cluster.id] == []
    base = await world.made(cluster)
    pending = await world.back_up(cluster, "incremental")
    assert await world.needed_by(base) == pending["id"]
    assert (await world.delete(base, "?cascade=true")).status_code == 202
    await world.work()
    await world.work(after=120)
    assert await world.list(cluster) == []


@on_both_databases
@pytest.mark.parametrize("ends", [True, False], ids=["the program ends", "it dies too"])
async def test_a_run_whose_service_died_is_reconciled_with_what_the_archive_lists(
    world: BackupWorld, cluster: Cluster, metadata_url: str, ends: bool
) -> None:
    world.archive.may_end.clear()
    asked = await world.back_up(cluster)
    worker = JobWorker(world.database, world.kinds, pace=SWIFT, clock=world.clock)
    task = asyncio.create_task(worker.run())
    await world.archive.running.wait()
    await world.until(asked, status="running")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    end_leases(metadata_url)
    if ends:
        world.archive.finish(cluster.id, asked["id"], "base")
    waiting = await world.back_up(cluster)
    world.archive.may_end.set()
    await world.work(after=120, times=2)  # it may have looked for its turn just before that came
    found = await world.show(asked)
    assert (found["status"], found["size_bytes"]) == ("succeeded", SIZE)
    runs = world.archive.calls.count(f"base {asked['id']}")
    assert runs == (1 if ends else 2), "it is made again only if it is not there"
    assert (await world.show(waiting))["status"] == "succeeded"  # nor does it hold others up


async def test_the_backup_of_another_cluster_is_not_found(
    world: BackupWorld, cluster: Cluster
) -> None:
    made, other = await world.made(cluster), await world.add_cluster("other")
    answer = await world.ask("GET", f"/{other.id}/backups/{made['id']}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "NOT_FOUND")


async def test_a_cluster_that_cannot_be_backed_up_says_why(world: BackupWorld) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"bucket": None, "bucket_name": ""}, "no_bucket"),
        ({"status": "stopped"}, "not_running"),
        ({"status": "provisioning", "version": None}, "not_running"),
        ({"status": "deleting"}, "not_running"),
    ]
    for number, (changes, reason) in enumerate(cases):
        found = await world.add_cluster(f"odd-{number}", **changes)
        answer = await world.ask("POST", f"/{found.id}/backups")
        told = answer.status_code, answer.json()["error"]["params"]["reason"]
        assert told == (409, reason), changes


@on_both_databases
async def test_the_progress_of_a_run_is_shown(world: BackupWorld, cluster: Cluster) -> None:
    world.archive.may_end.clear()
    world.archive.told = (10, 40)
    asked = await world.back_up(cluster)
    async with at_work(world):
        await world.until(asked, progress=40)
        world.archive.may_end.set()
    assert (await world.worked(asked))["progress"] == 100


async def test_a_running_backup_is_deleted_when_it_has_ended(
    world: BackupWorld, cluster: Cluster
) -> None:
    world.archive.may_end.clear()
    asked = await world.back_up(cluster)
    async with at_work(world):
        await world.archive.running.wait()
        assert (await world.delete(asked)).status_code == 202
        assert (await world.delete(asked)).status_code == 202
        world.archive.may_end.set()
    await world.work(after=120)
    assert await world.list(cluster) == []
    assert world.archive.backups[cluster.id] == []


async def test_a_deletion_that_fails_says_so_and_goes_on_and_holds_up_nobody(
    world: BackupWorld, cluster: Cluster
) -> None:
    first = await world.made(cluster)
    world.archive.failures.append(BackupFailed("the bucket cannot be reached"))
    await world.delete(first)
    found = await world.worked(first)
    assert (found["status"], found["faults"][0]["code"]) == ("deleting", "BACKUP_DELETION_FAILED")
    second = await world.made(cluster)
    await world.work(after=120)
    assert [each["id"] for each in await world.list(cluster)] == [second["id"]]
    # With its bucket, all of it is gone.
    world.archive.failures.append(BucketGone("the bucket was deleted"))
    await world.delete(second)
    await world.work()
    assert await world.list(cluster) == []


async def test_two_deletions_that_fail_do_not_wake_each_other(
    world: BackupWorld, cluster: Cluster
) -> None:
    both = [await world.made(cluster) for _ in range(2)]
    refusals = 40
    world.archive.failures += [BackupFailed("the bucket cannot be reached")] * refusals
    for each in both:
        assert (await world.delete(each)).status_code == 202
    minutes = 4
    await world.work()
    await world.work(after=61, times=minutes)
    tries = refusals - len(world.archive.failures)
    assert 1 + minutes <= tries <= 2 * (1 + minutes)  # one a minute, or one for each of the two
    world.archive.failures.clear()
    await world.work(after=61, times=2)
    assert await world.list(cluster) == []


async def test_a_backup_whose_machine_is_lost_says_so_until_that_is_back(
    world: BackupWorld, cluster: Cluster
) -> None:
    whole = await world.made(cluster)
    waiting = await world.back_up(cluster)

    async def seen() -> list[tuple[str, list[str]]]:
        await look(world.database, world.clock, [PLACING])
        found = [await world.show(each) for each in (whole, waiting)]
        return [(each["status"], [fault["code"] for fault in each["faults"]]) for each in found]

    assert await seen() == [("succeeded", []), ("pending", [])]
    world.clock.pass_seconds(120)
    assert await seen() == [("succeeded", []), ("pending", ["NODE_LOST"])]
    await world.database.write(claim, world.needs.node, uuid7(), world.clock())
    assert await seen() == [("succeeded", []), ("pending", [])]
    assert (await world.worked(waiting))["status"] == "succeeded"


async def test_older_bases_go_with_what_needs_them_but_never_the_last_that_succeeded(
    world: BackupWorld,
) -> None:
    cluster = await world.add_cluster("kept", retention=KEEP_TWO)
    for _ in range(2):
        await world.made(cluster)
        await world.made(cluster, "incremental")
    first, _, third, _ = await world.list(cluster)
    await world.back_up(cluster)
    await world.fail()
    assert len(await world.list(cluster)) == 5  # what failed is no reason to delete
    newest = await world.made(cluster)
    await world.work(after=120, times=3)
    left = await world.list(cluster)
    assert first["id"] not in [each["id"] for each in left]
    whole = [each for each in left if each["status"] == "succeeded"]
    assert [each["kind"] for each in whole] == ["base", "incremental", "base"]
    assert [whole[0]["id"], whole[2]["id"]] == [third["id"], newest["id"]]
    assert len(world.archive.backups[cluster.id]) == 3


async def test_a_deleted_cluster_takes_its_backups_along(world: BackupWorld) -> None:
    """Also those that nobody can read."""
    for failures in (0, 9):
        cluster = await world.add_cluster(f"shop-{failures}")
        await world.made(cluster)
        await world.made(cluster, "incremental")
        world.archive.failures += [BackupFailed("the KMS key is disabled")] * failures
        assert (await world.ask("DELETE", f"/{cluster.id}")).status_code == 409
        assert (await world.ask("DELETE", f"/{cluster.id}?cascade=true")).status_code == 202
        await world.work(after=120, times=5)
        assert (await world.ask("GET", f"/{cluster.id}")).status_code == 404
        assert world.archive.backups == {}


async def test_a_cluster_whose_backup_is_still_to_be_made_goes_only_with_it(
    world: BackupWorld, cluster: Cluster
) -> None:
    await world.back_up(cluster)
    answer = await world.ask("DELETE", f"/{cluster.id}")
    assert (answer.status_code, answer.json()["error"]["params"]["reason"]) == (409, "has_backups")
    await world.fail()
    assert (await world.list(cluster))[0]["status"] == "failed"
    assert (await world.ask("DELETE", f"/{cluster.id}")).status_code == 202


async def test_topics_are_told_what_became_of_backups(database: Database, tmp_path: Path) -> None:
    told: list[str] = []

    def topics_of(_tx: object, _account_id: str, event_type: str) -> list[str]:
        told.append(event_type)
        return []

    async with open_backups(database, tmp_path, topics_of=topics_of) as world:
        cluster = await world.add_cluster()
        await world.made(cluster)
        await world.back_up(cluster)
        await world.fail()
    assert told == [SUCCEEDED, FAILED]

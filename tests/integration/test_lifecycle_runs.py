"""Runs of lifecycle policies, and what others do while one is under way."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from cloudcore.wire import rfc3339
from registry.gc.purge import purge_deleted_repositories
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_MANIFEST
from registry.services import collector_runs as collection
from registry.services.collector_runs import start_collection
from registry.services.lifecycle import runs
from registry.services.lifecycle.runs import KIND, start_due_runs
from tests.databases import on_both_databases
from tests.integration.lifecycle_world import DAY, LifecycleWorld, pin
from tests.integration.pushing import Descriptor
from tests.jobs import lose_workers
from tests.recount import check_counters, querying
from tests.topics import add_topics

UNTAGGED: Final = {"priority": 1, "selector": "untagged", "older_than_days": 7}
STALE: Final = {"priority": 2, "selector": "any", "not_pulled_for_days": 7}
NEWEST: Final = {"priority": 3, "selector": "any", "keep_last": 2}

Meddling = Callable[[LifecycleWorld, Descriptor], Awaitable[object]]


async def tag(world: LifecycleWorld, image: Descriptor) -> None:
    answer = await world.control.put(f"{world.path}/tags/again", json={"digest": image["digest"]})
    assert answer.status_code == 201, answer.text


async def pull(world: LifecycleWorld, image: Descriptor) -> None:
    assert await world.pulls(image["digest"])
    await world.install.ctx.pulls.flush()


async def pin_for_an_hour(world: LifecycleWorld, image: Descriptor) -> None:
    path = f"{world.images}/{image['digest']}/pins/prod"
    end = rfc3339(world.install.clock.now + 3600 * 1_000_000)
    assert (await world.control.put(path, json={"expires_at": end})).status_code == 201


async def delete_and_restore(world: LifecycleWorld, image: Descriptor) -> None:
    path = f"{world.images}/{image['digest']}"
    assert (await world.control.delete(path)).status_code == 204
    await restore(world, image)


async def list_in_an_index(world: LifecycleWorld, image: Descriptor) -> None:
    await world.push_index([image])


async def delete_a_newer_one(world: LifecycleWorld, _: Descriptor) -> None:
    newest = (await world.get("/images"))["images"][0]["digest"]
    assert (await world.control.delete(f"{world.images}/{newest}")).status_code == 204


async def pin_a_newer_one(world: LifecycleWorld, _: Descriptor) -> None:
    newest = (await world.get("/images"))["images"][0]
    await pin(world, newest)


ON_BOTH: Final[tuple[tuple[dict[str, Any], Meddling], ...]] = (
    (NEWEST, tag),
    (STALE, pull),
    (UNTAGGED, pin),
    (STALE, pin_for_an_hour),
    (UNTAGGED, delete_and_restore),
    (NEWEST, list_in_an_index),
    (NEWEST, delete_a_newer_one),  # so it is one of the two newest now
    (NEWEST, pin_a_newer_one),  # which does not count any more
)
"""Each meddling once, with a rule whose reason to delete the image it ends."""
ON_SQLITE: Final = (
    *ON_BOTH,
    *((rule, tag) for rule in (UNTAGGED, STALE)),
    (NEWEST, delete_and_restore),
    (UNTAGGED, list_in_an_index),
)


@pytest.mark.parametrize(
    ("database_url", "rule", "meddling"),
    [
        *(("sqlite", *each) for each in ON_SQLITE),
        *(pytest.param("postgresql", *each, marks=pytest.mark.postgresql) for each in ON_BOTH),
    ],
    indirect=["database_url"],
)
async def test_what_happens_between_selection_and_deletion_saves_the_image(
    database_url: str, lifecycle: LifecycleWorld, rule: dict[str, Any], meddling: Meddling
) -> None:
    other, image = [await lifecycle.push_image(name) for name in ("other", "image")]
    await lifecycle.pass_days(4)
    if rule is NEWEST:
        for name in ("newer", "newest"):
            await lifecycle.push_image(name)
    await lifecycle.pass_days(4)
    assert set(await lifecycle.previewed(rule)) == {image["digest"], other["digest"]}
    run = await lifecycle.run(rule, meddle=lambda: meddling(lifecycle, image))
    left = await lifecycle.digests()
    assert run["status"] == "succeeded"
    assert image["digest"] in left
    assert other["digest"] not in left
    assert run["expired"] == 1
    with querying(database_url) as query:
        check_counters(query, "acme")


@on_both_databases
async def test_a_subject_that_comes_saves_its_referrer(lifecycle: LifecycleWorld) -> None:
    document = await lifecycle.image_document("subject")
    body = json.dumps(document).encode()
    subject = {"mediaType": OCI_MANIFEST, "digest": str(digest_of(body)), "size": len(body)}
    signature = await lifecycle.push_image("signature", subject=subject)
    await lifecycle.pass_days(8)

    async def push_subject() -> None:
        await lifecycle.push(document)

    run = await lifecycle.run(UNTAGGED, meddle=push_subject)
    assert run["expired"] == 0
    assert await lifecycle.digests() == {subject["digest"], signature["digest"]}


async def test_the_family_of_a_saved_image_is_saved(lifecycle: LifecycleWorld) -> None:
    push = lifecycle.push_image
    platform, loose = await push("amd64"), await push("loose")
    index = await lifecycle.push_index([platform])
    signature = await push("signature", subject=index)
    await lifecycle.pass_days(8)
    expected = {each["digest"] for each in (platform, loose, index, signature)}
    assert set(await lifecycle.previewed(UNTAGGED)) == expected
    run = await lifecycle.run(UNTAGGED, meddle=lambda: tag(lifecycle, index))
    assert await lifecycle.digests() == expected - {loose["digest"]}
    assert run["expired"] == 1


async def test_what_was_not_to_go_does_not_go_this_time(lifecycle: LifecycleWorld) -> None:
    """Measured against again, an image may be found to be due now; nobody was shown that."""
    rules = [
        {"priority": 1, "selector": "tagged", "tag_prefixes": ["v"], "keep_last": 1},
        {"priority": 2, "selector": "untagged", "keep_last": 1},
    ]

    old = await lifecycle.push_image("old", "v1")
    await lifecycle.push_image("new", "v2")
    await lifecycle.push_image("newest")
    await lifecycle.pass_days(1)
    assert await lifecycle.previewed(*rules) == {old["digest"]: 1}

    async def untag() -> None:
        answer = await lifecycle.control.delete(f"{lifecycle.path}/tags/v2")
        assert answer.status_code == 204

    run = await lifecycle.run(*rules, meddle=untag)
    assert run["expired"] == 0
    assert len(await lifecycle.digests()) == 3


async def take_the_policy_away(world: LifecycleWorld) -> None:
    assert (await world.control.delete(world.policy)).status_code == 204


async def change_the_policy(world: LifecycleWorld) -> None:
    await world.put(STALE)


async def delete_the_repository(world: LifecycleWorld) -> None:
    answer = await world.control.delete(world.path, params={"force": "true"})
    assert answer.status_code == 204


@pytest.mark.parametrize(
    ("meddling", "fault"),
    [
        (take_the_policy_away, "POLICY_CHANGED"),
        (change_the_policy, "POLICY_CHANGED"),
        (delete_the_repository, "REPOSITORY_DELETED"),
    ],
)
async def test_a_run_stops_when_it_is_no_longer_wanted(
    lifecycle: LifecycleWorld,
    sqlite_database: str,
    meddling: Callable[[LifecycleWorld], Awaitable[None]],
    fault: str,
) -> None:
    await lifecycle.push_image("image")
    await lifecycle.pass_days(8)
    await lifecycle.put(UNTAGGED)
    assert (await lifecycle.control.post(f"{lifecycle.policy}/runs")).status_code == 202
    await lifecycle.work(meddle=lambda: meddling(lifecycle))
    with querying(sqlite_database) as query:
        ((state, words, counts),) = query("SELECT state, fault, counts FROM runs")
        assert query("SELECT count(*) FROM manifests") == [(1,)]
    assert (state, json.loads(counts)["expired"]) == ("failed", 0)
    assert words.startswith(fault)


async def test_a_run_that_cannot_work_fails_with_its_fault(lifecycle: LifecycleWorld) -> None:
    await lifecycle.put(UNTAGGED)
    assert (await lifecycle.control.post(f"{lifecycle.policy}/runs")).status_code == 202
    await lose_workers(lifecycle.install.database, KIND, lifecycle.install.clock())
    await lifecycle.work()
    (run,) = await lifecycle.runs()
    assert (run["status"], run["fault"]) == ("failed", "WORKER_LOST")
    # It holds up no other.
    assert (await lifecycle.control.post(f"{lifecycle.policy}/runs")).status_code == 202
    assert [run["status"] for run in await lifecycle.runs()] == ["running", "failed"]


@on_both_databases
async def test_many_images_go_in_portions(
    lifecycle: LifecycleWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than one transaction takes, with a subject whose referrers are divided."""
    monkeypatch.setattr(runs, "PORTION", 5)
    subject = await lifecycle.push_image("subject")
    document = await lifecycle.image_document("signature")
    for number in range(6):
        about = {"subject": subject, "annotations": {"number": str(number)}}
        await lifecycle.push(document | about)
    for number in range(5):
        await lifecycle.push(document | {"annotations": {"number": str(number)}})
    await lifecycle.pass_days(8)
    run = await lifecycle.run(UNTAGGED)
    assert (run["status"], run["evaluated"], run["expired"]) == ("succeeded", 12, 12)
    assert await lifecycle.digests() == set()
    record = await lifecycle.record()
    assert (record["image_count"], record["size_bytes"]) == (0, 0)


@on_both_databases
async def test_due_policies_run_once_whoever_starts_them(lifecycle: LifecycleWorld) -> None:
    ctx = lifecycle.install.ctx
    made = await lifecycle.put(UNTAGGED)
    assert await start_due_runs(ctx) == 0
    await lifecycle.push_image("image")
    await lifecycle.pass_days(8)
    assert await start_due_runs(ctx) == 1
    assert await start_due_runs(ctx) == 0
    await lifecycle.work()
    (run,) = await lifecycle.runs()
    assert (run["started_by"], run["status"], run["expired"]) == (None, "succeeded", 1)
    answer = await lifecycle.control.get(lifecycle.policy)
    policy = answer.json()["lifecycle_policy"]
    assert policy["revision"] == 1
    assert policy["next_run_at"] > made["next_run_at"]
    lifecycle.install.clock.advance(DAY - 60)
    assert await start_due_runs(ctx) == 0
    lifecycle.install.clock.advance(60)
    assert await start_due_runs(ctx) == 1


async def test_the_runs_over_a_repository_go_with_it_and_none_begins(
    lifecycle: LifecycleWorld, database_url: str
) -> None:
    await lifecycle.run(UNTAGGED)
    ctx = lifecycle.install.ctx
    await ctx.database.write(
        start_collection, lifecycle.account.id, ctx.new_id(), ctx.change_by("")
    )
    await delete_the_repository(lifecycle)
    await lifecycle.pass_days(2)
    assert await start_due_runs(ctx) == 0
    assert await purge_deleted_repositories(ctx) == 0
    lifecycle.install.clock.advance(100 * DAY)
    assert await purge_deleted_repositories(ctx) == 1
    with querying(database_url) as query:
        assert query("SELECT kind FROM runs") == [(collection.KIND,)]


async def restore(world: LifecycleWorld, *images: Descriptor) -> None:
    answer = await world.control.post(
        f"{world.images}/restore", json={"digests": [image["digest"] for image in images]}
    )
    assert (answer.status_code, answer.json()["failures"]) == (200, []), answer.text


@on_both_databases
async def test_bytes_that_another_repository_links_are_not_freed(lifecycle: LifecycleWorld) -> None:
    other = await lifecycle.another("other")
    await lifecycle.push_image("shared layer")
    await lifecycle.push_image("own")
    await other.push_image("shared layer")
    await lifecycle.pass_days(8)
    found = await lifecycle.preview(UNTAGGED)
    assert found["summary"]["freed_bytes"] == len("own")
    assert (await lifecycle.run(UNTAGGED))["freed_bytes"] == len("own")


async def test_the_end_of_a_run_is_told(lifecycle: LifecycleWorld, sqlite_database: str) -> None:
    account = lifecycle.account.id
    await add_topics(lifecycle.install.database, lifecycle.account.handle, "t")
    topic = f"crn:notifications:local:{account}:topic/t"
    rule = {"topic": topic, "event_types": ["registry.*"]}
    answer = await lifecycle.control.post("/v1/event-rules", json=rule)
    assert answer.status_code == 201, answer.text
    await lifecycle.push_image("image", "v1")
    await lifecycle.pass_days(8)
    await lifecycle.run(STALE)
    with querying(sqlite_database) as query:
        types = [row[0] for row in query("SELECT type FROM outbox ORDER BY sequence")]
    assert types[-3:] == [
        "registry.image.deleted",
        "registry.tag.deleted",
        "registry.lifecycle.completed",
    ]

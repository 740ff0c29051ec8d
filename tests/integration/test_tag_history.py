"""The history of tags on both databases: told to its end, counted right, forgotten in order."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from cloudcore.clock import MICROSECONDS
from registry.gc.purge import forget_tag_history, purge_deleted_repositories
from registry.metadata.repositories.deleted import remove_repository
from tests.databases import on_both_databases
from tests.integration.pushing import World, refused
from tests.recount import check_counters, querying

pytestmark = on_both_databases

DAY = 24 * 3600


@pytest.fixture
async def world(metadata_url: str, world: World) -> AsyncIterator[World]:
    """Return a repository whose counters are checked at the end."""
    yield world
    with querying(metadata_url) as query:
        check_counters(query, "acme")


async def told(world: World, tag: str, limit: int = 2) -> list[str]:
    """Return what became of a tag, the newest first, read in pages that agree on the total."""
    listed = await world.all(f"/tags/{tag}/history", limit=limit)
    return [each["action"] for each in listed]


async def move(world: World, tag: str, digest: str) -> None:
    answer = await world.control.put(f"{world.path}/tags/{tag}", json={"digest": digest})
    assert answer.status_code in (200, 201), answer.text


async def test_what_is_forgotten_is_not_counted(world: World) -> None:
    one = (await world.push_image("one", "v1", "old"))["digest"]
    two = (await world.push_image("two"))["digest"]
    await world.pass_seconds(200 * DAY)
    for _ in range(30):  # more than one batch of the forgetting job
        await move(world, "v1", two)
        await move(world, "v1", one)
    assert len(await told(world, "v1", limit=50)) == 61
    await world.pass_seconds(165 * DAY)
    await forget_tag_history(world.install.ctx)
    assert len(await told(world, "v1", limit=50)) == 60
    assert await told(world, "old") == []  # it is there, and so old that nobody knows since when
    await world.pass_seconds(200 * DAY)
    await forget_tag_history(world.install.ctx)
    assert await told(world, "v1") == []
    await move(world, "v1", two)
    await move(world, "v1", one)
    assert await told(world, "v1") == ["moved", "moved"]


async def test_a_later_event_of_an_earlier_time_waits_for_those_before_it(world: World) -> None:
    """Clocks of processes disagree; a gap would make the total of a history wrong."""
    one = (await world.push_image("one", "v1"))["digest"]
    two = (await world.push_image("two"))["digest"]
    now = world.install.clock.now
    world.install.clock.advance(60)
    await move(world, "v1", two)
    world.install.clock.now = now
    await move(world, "v1", one)
    await world.pass_seconds(365 * DAY + 1)
    await forget_tag_history(world.install.ctx)
    assert await told(world, "v1") == ["moved", "moved"]
    await world.pass_seconds(60)
    await forget_tag_history(world.install.ctx)
    assert await told(world, "v1") == []


async def test_a_history_goes_on_where_a_repository_was_restored(world: World) -> None:
    one = (await world.push_image("one", "v1"))["digest"]
    two = (await world.push_image("two"))["digest"]
    await move(world, "v1", two)
    assert (await world.control.delete(f"{world.path}?force=true")).status_code == 204
    refused(await world.control.get(f"{world.path}/tags/v1/history"), 404, "NOT_FOUND")
    # The same name anew has a history of its own.
    answer = await world.control.post("/v1/repositories", json={"name": "app"})
    other = answer.json()["repository"]["id"]
    refused(await world.control.get(f"/v1/repositories/{other}/tags/v1/history"), 404, "NOT_FOUND")
    assert (await world.control.delete(f"/v1/repositories/{other}")).status_code == 204
    assert (await world.control.post(f"{world.path}/restore")).status_code == 200
    await move(world, "v1", one)
    assert (await world.control.delete(f"{world.images}/{one}")).status_code == 204
    restored = await world.control.post(f"{world.images}/restore", json={"digests": [one]})
    assert restored.json()["failures"] == []
    expected = ["restored", "deleted", "moved", "moved", "created"]
    assert await told(world, "v1") == expected


async def test_the_history_of_a_deleted_repository_does_not_go_at_one_blow(
    world: World, database_url: str
) -> None:
    """It may have moved tags a million times, and SQLite has one writer."""
    days = {"undelete_days": 0}
    assert (await world.control.patch("/v1/registry-settings", json=days)).status_code == 200
    image = await world.push_image("one", "v1")
    assert (await world.control.delete(f"{world.images}/{image['digest']}")).status_code == 204
    with querying(database_url) as query:
        blobs = [row[0] for row in query("SELECT digest FROM repository_blobs")]
    for blob in blobs:
        answer = await world.docker.delete(f"/v2/{world.name}/blobs/{blob}")
        assert answer.status_code == 202
    assert (await world.control.delete(world.path)).status_code == 204
    # The row of the repository is the last to go: nothing is left to go with it.
    database = world.install.database
    assert not await database.write(remove_repository, world.repository_id)
    world.install.clock.now += 2 * 3600 * MICROSECONDS
    assert await purge_deleted_repositories(world.install.ctx) == 1

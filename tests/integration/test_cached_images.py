"""What a rule of the pull-through cache counts, and which of its images go."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

from sqlalchemy import text

from cloudcore.db.statement import Statement
from registry.services.pull_through.retention import expire_cached_images
from tests.databases import on_both_databases
from tests.integration.cached_world import CachedWorld, cached_world
from tests.integration.counting import CountingDatabase
from tests.integration.pushing import create
from tests.tenants import Install

DAY: Final = 24 * 3600
HOUR: Final = 3600
LAYER: Final = b"x" * 1000
_EXPIRED: Final = Statement(
    text("SELECT details FROM audit_events WHERE action = 'registry:ExpireCachedImages'")
)


async def pull(world: CachedWorld, name: str, tag: str) -> None:
    pulling = await world.pushes(name)
    manifest = (await pulling.pull(tag)).json()
    for layer in manifest["layers"]:
        answer = await pulling.docker.get(f"/v2/acme/{name}/blobs/{layer['digest']}")
        assert answer.status_code == 200
    await world.install.ctx.pulls.flush()


@on_both_databases
async def test_pulls_and_bytes_are_counted_for_the_rule(install: Install) -> None:
    world = await cached_world(install)
    await world.fill("quay/app", ("v1", LAYER))
    counts = install.ctx.pulls.cache
    counts.fetched(world.rule_id, 300, is_image=True)
    counts.fetched(world.rule_id, 1000)
    for _ in range(3):
        await pull(world, "quay/app", "v1")
    stats = (await world.rule())["stats"]
    assert stats["cached_images"] == 1
    assert (stats["hits"], stats["misses"]) == (2, 1)
    assert (stats["fetched_bytes"], stats["saved_bytes"]) == (1300, 3 * 1000 - 1300)

    counts.fetched("01890000-0000-7000-8000-000000000001", 1)  # of a rule that was deleted
    await create(world.client, "own")
    own = await world.pushes("own")
    await own.image(LAYER, tag="v1")
    await pull(world, "own", "v1")
    assert (await world.rule())["stats"] == stats
    await world.client.delete(f"/v1/pull-through-cache-rules/{world.rule_id}")
    await pull(world, "quay/app", "v1")


@on_both_databases
async def test_images_that_nobody_pulls_go_after_their_days(install: Install) -> None:
    world = await cached_world(install)
    await world.fill("quay/app", ("old", b"1"), ("used", b"2"), ("pinned", b"3"))
    await create(world.client, "own")
    own = await world.pushes("own")
    await own.image(b"1", tag="old")
    found = await world.client.get("/v1/repositories", params={"name": "quay/app"})
    repository = found.json()["repositories"][0]["id"]
    pinned = (await (await world.pushes("quay/app")).pull("pinned")).headers[
        "docker-content-digest"
    ]
    pin = f"/v1/repositories/{repository}/images/{pinned}/pins/audit"
    assert (await world.client.put(pin, json={})).status_code == 201
    await world.advance(20 * DAY)
    await pull(world, "quay/app", "used")
    assert await expire_cached_images(install.ctx) == 0
    await world.change(keep_unpulled_days=30)
    await world.advance(9 * DAY)
    assert await expire_cached_images(install.ctx) == 0
    await world.advance(2 * DAY)
    assert await expire_cached_images(install.ctx) == 1
    assert await world.tags("quay/app") == ["pinned", "used"]
    assert await world.tags("own") == ["old"]
    deleted = await world.client.get(f"/v1/repositories/{repository}/images/deleted")
    assert deleted.json()["images"] == []
    row = await install.database.read(lambda tx: tx.row(_EXPIRED))
    assert row is not None
    assert json.loads(row[0]) == {"expired": 1}


@on_both_databases
async def test_an_index_goes_before_its_images_and_keeps_them_while_it_is_used(
    install: Install,
) -> None:
    world = await cached_world(install)
    digests = await world.fill("quay/app", ("amd64", b"1"), ("arm64", b"2"))
    await world.fill_index("quay/app", "latest", digests.values())
    await world.change(keep_unpulled_days=30)
    await world.advance(20 * DAY)
    await (await world.pushes("quay/app")).pull("latest")
    await install.ctx.pulls.flush()
    await world.advance(11 * DAY)
    assert await expire_cached_images(install.ctx) == 0
    await world.advance(20 * DAY)
    assert await expire_cached_images(install.ctx) == 3
    assert (await world.rule())["stats"]["cached_images"] == 0


@on_both_databases
async def test_a_cache_that_is_too_large_loses_what_was_pulled_longest_ago(
    install: Install,
) -> None:
    world = await cached_world(install)
    await world.fill("quay/app", ("a", b"a" * 1000), ("b", b"b" * 1000))
    await world.fill("quay/team/web", ("c", b"c" * 1000))
    await world.advance(HOUR)
    for name, tag in (("quay/team/web", "c"), ("quay/app", "a"), ("quay/app", "b")):
        await world.advance(HOUR)
        await pull(world, name, tag)
    await world.change(max_bytes=2100)
    await world.advance(2 * HOUR)
    assert await expire_cached_images(install.ctx) == 1
    assert await world.tags("quay/team/web") == []
    assert await world.tags("quay/app") == ["a", "b"]
    assert (await world.rule())["stats"]["cached_bytes"] <= 2100
    assert await expire_cached_images(install.ctx) == 0

    await pull(world, "quay/app", "a")
    await world.change(max_bytes=1)
    assert await expire_cached_images(install.ctx) == 1
    assert await world.tags("quay/app") == ["a"], "what was just pulled stays"


@on_both_databases
async def test_the_bytes_of_a_rule_are_summed_up_a_few_times_however_many_images_go(
    install: Install,
) -> None:
    world = await cached_world(install)
    layers = [bytes([number]) * 1000 for number in range(32)]
    await world.fill("quay/app", *((f"v{layer[0]}", layer) for layer in layers))
    await world.advance(2 * HOUR)
    await world.change(max_bytes=2100)
    counted = CountingDatabase(install.database)
    assert await expire_cached_images(replace(install.ctx, database=counted)) == 30
    assert len(await world.tags("quay/app")) == 2
    sums = sum(
        "sum(" in each.sqlite.lower() and "size_bytes" in each.sqlite for each in counted.seen
    )
    assert 2 <= sums <= 8, sums

"""What a rule of the pull-through cache counts, and which of its images go."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import httpx
from sqlalchemy import bindparam, text

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from registry.services.pull_through.retention import expire_cached_images
from tests.databases import on_both_databases
from tests.integration.counting import CountingDatabase
from tests.integration.pushing import Pusher, create, pusher, signed_in
from tests.tenants import ALLOW_ALL, Install, Program, bearer

DAY: Final = 24 * 3600
HOUR: Final = 3600
LAYER: Final = b"x" * 1000
_EXPIRED: Final = Statement(
    text("SELECT details FROM audit_events WHERE action = 'registry:ExpireCachedImages'")
)
PATH: Final = "/v1/pull-through-cache-rules"
QUAY: Final = "https://quay.io"
_SET_SOURCE: Final = Statement(
    text("UPDATE repositories SET source = :source WHERE name LIKE 'quay/%'").bindparams(
        bindparam("source")
    )
)
# A tag that was pushed has no time at which the upstream is to be asked.
_SET_FRESH: Final = Statement(
    text(
        "UPDATE tags SET fresh_until = 4611686018427387904 WHERE repository_id IN"
        " (SELECT id FROM repositories WHERE name LIKE 'quay/%')"
    )
)


@dataclass
class CachedWorld:
    """The account ``acme``, whose rule ``quay`` caches ``quay/…``."""

    install: Install
    program: Program
    client: httpx.AsyncClient
    rule_id: str

    async def pushes(self, name: str) -> Pusher:
        """Return a pusher to a repository; of a cached one it can only pull."""
        return await pusher(self.install, self.program, f"acme/{name}")

    async def fill(self, name: str, *images: tuple[str, bytes]) -> dict[str, str]:
        """Put images of one layer each into a cached repository, by tag; return their digests."""
        pushing = await self.pushes(name)
        await self.install.database.write(_set_source, "push")
        made = await self.client.get("/v1/repositories", params={"name": name})
        if not made.json()["repositories"]:
            self.rule_id = await self._without_rule(name)
        digests = {tag: await pushing.image(layer, tag=tag) for tag, layer in images}
        await self.install.database.write(_set_source, "pull_through_cache")
        return digests

    async def fill_index(self, name: str, tag: str, children: Iterable[str]) -> None:
        """Put an index of images that are there into a cached repository."""
        await self.install.database.write(_set_source, "push")
        await (await self.pushes(name)).index(*children, tag=tag)
        await self.install.database.write(_set_source, "pull_through_cache")

    async def advance(self, seconds: float) -> None:
        """Let time pass, after which another program goes on: tokens expire."""
        self.install.clock.advance(seconds)
        account, name = self.program.account, f"at-{self.install.clock()}"
        self.program = await self.install.add_program(account, name, ALLOW_ALL)
        self.client.headers.update(bearer(self.program.access_token))

    async def rule(self) -> dict[str, Any]:
        """Return the rule."""
        answer = await self.client.get(f"{PATH}/{self.rule_id}")
        found: dict[str, Any] = answer.json()["pull_through_cache_rule"]
        return found

    async def change(self, **fields: Any) -> None:  # noqa: ANN401
        """Change the rule."""
        answer = await self.client.patch(f"{PATH}/{self.rule_id}", json=fields)
        assert answer.status_code == 200, answer.text

    async def tags(self, name: str) -> list[str]:
        """Return the tags of a repository."""
        pulling = await self.pushes(name)
        answer = await pulling.docker.get(f"/v2/acme/{name}/tags/list")
        found: list[str] = answer.json()["tags"]
        return found

    async def _without_rule(self, name: str) -> str:
        """Create a repository while there is no rule; return the id of the new rule."""
        assert (await self.client.delete(f"{PATH}/{self.rule_id}")).status_code == 204
        await create(self.client, name)
        await self.install.database.write(_set_source, "pull_through_cache")
        rule_id = await make_rule(self.client)
        await self.install.database.write(_set_source, "push")
        return rule_id


def _set_source(tx: Connection, source: str) -> None:
    tx.execute(_SET_SOURCE, source=source)
    if source == "pull_through_cache":
        tx.execute(_SET_FRESH)


async def make_rule(client: httpx.AsyncClient) -> str:
    """Create the rule, and return its id."""
    answer = await client.post(PATH, json={"prefix": "quay", "upstream_url": QUAY})
    assert answer.status_code == 201, answer.text
    made: str = answer.json()["pull_through_cache_rule"]["id"]
    return made


async def cached_world(install: Install) -> CachedWorld:
    """Return an account with a rule that has cached nothing."""
    account = await install.add_account("acme")
    program = await install.add_program(account, "ci", ALLOW_ALL)
    client = signed_in(install, program)
    return CachedWorld(install, program, client, await make_rule(client))


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

"""The search by a part of a name, and the actions that a caller may do on a repository."""

from __future__ import annotations

from typing import Any, cast

import pytest

from registry.metadata.repositories.search_index import list_unsettled, settle_batch
from registry.services.repositories import search
from registry.services.resource_kinds import REPOSITORY
from tests.databases import on_both_databases
from tests.integration.pushing import World, make_world, refused, signed_in
from tests.tenants import allow


async def found(world: World, **query: object) -> dict[str, Any]:
    """Return the names that a search tells, and the rest of its answer."""
    answer = await world.control.get("/v1/repositories/search", params=cast("Any", query))
    assert answer.status_code == 200, answer.text
    told = answer.json()
    told["repositories"] = [each["name"] for each in told["repositories"]]
    told["tags"] = [f"{each['repository']['name']}:{each['name']}" for each in told["tags"]]
    return cast("dict[str, Any]", told)


async def pages(world: World, **query: object) -> list[str]:
    """Return all names of all pages, in order."""
    names: list[str] = []
    more: dict[str, object] = {}
    while True:
        told = await found(world, **query, **more)
        names += told["repositories"] + told["tags"]
        if not told["meta"]["has_more"]:
            return names
        more = {"marker": told["meta"]["marker"]}


async def delete(world: World, path: str) -> None:
    assert (await world.control.delete(f"{world.path}{path}")).status_code == 204


async def settle(world: World) -> None:
    while await world.install.database.write(settle_batch, 7):
        pass


@on_both_databases
async def test_a_part_of_a_name_finds_repositories_and_tags(world: World) -> None:
    front = await world.another("web/frontend")
    back = await world.another("web/backend")
    await front.push_image("one", "Nightly-7", "v1")
    await back.push_image("two", "to_front", "v2")
    other = await make_world(world.install, "other")
    await other.push_image("three", "front")
    for _ in range(2):  # before they are indexed, and after
        await check_parts(world)
        await settle(world)


async def check_parts(world: World) -> None:
    told = await found(world, text="FRONT")
    assert told["repositories"] == ["web/frontend"]
    assert told["tags"] == ["web/backend:to_front"]
    assert told["meta"] == {"limit": 50, "has_more": False, "is_complete": True}
    assert (await found(world, text="nightly"))["tags"] == ["web/frontend:Nightly-7"]
    assert (await found(world, text="b/frontend"))["repositories"] == ["web/frontend"]
    for none in ("%", "*", "eb/_", "web\\", "\x01", "ﬀ", "x" * 128, "web/frontendx", "nweb"):
        told = await found(world, text=none)
        assert (told["repositories"], told["tags"]) == ([], [])
    assert await pages(world, text="web", limit=1) == ["web/backend", "web/frontend"]
    for wrong in ({}, {"text": ""}, {"text": "x" * 129}, {"text": "a", "marker": "b"}):
        answer = await world.control.get("/v1/repositories/search", params=wrong)
        assert answer.status_code == 400


@on_both_databases
async def test_what_is_gone_is_not_found_and_what_is_back_is(world: World) -> None:
    there = await world.another("there")
    await there.push_image("one", "needle-1", "needle-2")
    assert await pages(world, text="needle") == ["there:needle-1", "there:needle-2"]
    await settle(world)
    for _ in range(2):  # before its terms are removed, and after
        await delete(there, "/tags/needle-1")
        assert await pages(world, text="needle") == ["there:needle-2"]
        await there.push_image("one", "needle-1")
        assert await pages(world, text="needle") == ["there:needle-1", "there:needle-2"]
        await settle(world)
    before = await world.install.database.read(list_unsettled, world.account.id, "needle", 9)
    image = await there.push_image("two", "needle-1", "needle-2")  # which move: nothing to index
    assert await world.install.database.read(list_unsettled, world.account.id, "needle", 9) == (
        before
    )
    assert before == ([], True)
    await delete(there, f"/images/{image['digest']}")
    assert await pages(world, text="needle") == []
    await settle(world)
    assert await pages(world, text="needle") == []
    assert await pages(world, text="ther") == ["there"]
    await delete(there, "?force=true")
    assert await pages(world, text="ther") == []


@on_both_databases
async def test_a_search_reads_a_bounded_number_of_names(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_PAGE", 2)
    monkeypatch.setattr(search, "MAX_READ", 3)
    many = await world.another("many")
    tags = [f"m{number}-prefix-of-12-m{number}" for number in range(8)]
    await many.push_image("many", *tags)
    told = await found(world, text="-prefix-of-12-m7")
    assert told["tags"] == ["many:m7-prefix-of-12-m7"]
    await settle(world)
    assert await pages(world, text="m", limit=3) == ["many", *(f"many:{tag}" for tag in tags)]
    told = await found(world, text="fix-of-12-m")
    assert told["tags"] == [f"many:{tag}" for tag in tags[:3]]
    assert told["meta"]["has_more"]
    assert await pages(world, text="-prefix-of-12-m7") == ["many:m7-prefix-of-12-m7"]

    monkeypatch.setattr(search, "MAX_UNSETTLED", 1)
    await many.push_image("many", "new-1", "new-2")
    told = await found(world, text="new")
    assert (told["tags"], told["meta"]["is_complete"]) == (["many:new-1"], False)


async def test_a_search_needs_both_actions_and_a_caller_learns_what_it_may_do(
    world: World,
) -> None:
    describe, path = "registry:DescribeRepositories", f"{world.path}/allowed-actions"
    everything = (await world.get("/allowed-actions"))["actions"]
    assert everything == sorted(REPOSITORY.actions)
    for name, statement, status, told in (
        ("narrow", allow("registry:*", on="crn:registry:*:*:repository/web/*"), 403, None),
        ("half", allow(describe), 403, [describe]),
        ("both", allow(describe, "registry:DescribeImages"), 200, None),
        ("reader", allow(describe, "registry:PullImage"), 403, [describe, "registry:PullImage"]),
    ):
        program = await world.install.add_program(world.account, name, statement)
        client = signed_in(world.install, program)
        answer = await client.get("/v1/repositories/search", params={"text": "a"})
        assert answer.status_code == status, answer.text
        assert told is None or (await client.get(path)).json()["actions"] == told
    other = await make_world(world.install, "other")
    refused(await other.control.get(path), 404, "NOT_FOUND")

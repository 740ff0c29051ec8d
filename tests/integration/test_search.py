"""The search by a part of a name, and the actions that a caller may do on a repository."""

from __future__ import annotations

from typing import Any, cast

import pytest

from registry.services.repositories import search
from registry.services.resource_kinds import REPOSITORY
from tests.databases import on_both_databases
from tests.integration.pushing import World, make_world, refused
from tests.tenants import allow, bearer

pytestmark = on_both_databases


async def found(world: World, **query: str) -> dict[str, Any]:
    """Return the names that a search tells, and the rest of its answer."""
    answer = await world.control.get("/v1/repositories/search", params=query)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    told["repositories"] = [each["name"] for each in told["repositories"]]
    told["tags"] = [f"{each['repository']['name']}:{each['name']}" for each in told["tags"]]
    return cast("dict[str, Any]", told)


async def test_a_part_of_a_name_finds_repositories_and_tags(world: World) -> None:
    front = await world.another("web/frontend")
    back = await world.another("web/backend")
    await front.push_image("one", "Nightly-7", "v1")
    await back.push_image("two", "to_front", "v2")
    other = await make_world(world.install, "other")
    await other.push_image("three", "front")

    told = await found(world, text="FRONT")
    assert told["repositories"] == ["web/frontend"]
    assert told["tags"] == ["web/backend:to_front"]
    assert (told["searched_repositories"], told["searched_tags"]) == (3, 4)
    assert (told["skipped_tags"], told["continue_after"]) == (0, None)
    assert (await found(world, text="nightly"))["tags"] == ["web/frontend:Nightly-7"]
    for wild in ("%", "*", "eb/_", "web\\"):
        none = await found(world, text=wild)
        assert (none["repositories"], none["tags"]) == ([], [])
    assert (await found(world, text="web", after="web/backend"))["repositories"] == ["web/frontend"]
    for wrong in ({}, {"text": ""}, {"text": "x" * 129}, {"text": "a", "after": "b" * 211}):
        answer = await world.control.get("/v1/repositories/search", params=wrong)
        assert answer.status_code == 400


async def test_a_search_reads_a_bounded_number_of_names(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_TAGS", 3)
    monkeypatch.setattr(search, "MAX_REPOSITORIES", 2)
    for name in ("a", "b", "c", "d"):
        await (await world.another(name)).push_image(name, *(f"{name}{n}" for n in range(2)))
    seen: list[Any] = []
    after, requests = "", 0
    while True:
        told = await found(world, text="0", after=after)
        requests += 1
        assert told["searched_tags"] <= 3
        seen += told["tags"]
        if told["continue_after"] is None:
            break
        after = told["continue_after"]
    assert seen == ["a:a0", "b:b0", "c:c0", "d:d0"]
    assert requests == 4

    many = await world.another("a/many")
    await many.push_image("many", *(f"m{n}" for n in range(5)))
    told = await found(world, text="m", after="a")
    assert told["tags"] == ["a/many:m0", "a/many:m1", "a/many:m2"]
    assert (told["skipped_tags"], told["continue_after"]) == (2, "app")  # which has no tag


async def test_a_search_needs_both_actions_on_all_repositories(world: World) -> None:
    for name, statements, status in (
        ("narrow", [allow("registry:*", on="crn:registry:*:*:repository/web/*")], 403),
        ("half", [allow("registry:DescribeRepositories")], 403),
        ("both", [allow("registry:DescribeRepositories", "registry:DescribeImages")], 200),
    ):
        program = await world.install.add_program(world.account, name, *statements)
        client = world.install.connect()
        client.headers.update(bearer(program.access_token))
        answer = await client.get("/v1/repositories/search", params={"text": "a"})
        assert answer.status_code == status, answer.text


async def test_a_caller_learns_what_it_may_do(world: World) -> None:
    everything = (await world.get("/allowed-actions"))["actions"]
    assert everything == sorted(REPOSITORY.actions)
    reading = allow("registry:DescribeRepositories", "registry:PullImage")
    program = await world.install.add_program(world.account, "reader", reading)
    client = world.install.connect()
    client.headers.update(bearer(program.access_token))
    path = f"{world.path}/allowed-actions"
    told = (await client.get(path)).json()["actions"]
    assert told == ["registry:DescribeRepositories", "registry:PullImage"]
    other = await make_world(world.install, "other")
    refused(await other.control.get(path), 404, "NOT_FOUND")

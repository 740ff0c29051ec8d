"""Deletions by who may only push, and methods that paths do not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tests.integration.pushing import World, refused
from tests.tenants import allow, bearer

ROOT: Final = Path(__file__).parents[2]
METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


async def _state(world: World) -> Any:  # noqa: ANN401 - documents
    return await world.record(), await world.get("/images"), await world.get("/tags")


async def test_who_may_push_deletes_nothing(world: World) -> None:
    """Neither with a token for less nor with one that was refused the rest; nor on ``/v1``."""

    digest = (await world.push_image("one", "v1", "v2"))["digest"]
    before = await _state(world)
    rights = allow("registry:PullImage", "registry:PushImage")
    program = await world.install.add_program(world.account, "pusher", rights)
    password = await world.install.login(program)
    for actions, status in (("pull,push", 401), ("pull,push,delete", 403)):
        token = await world.install.exchange(password, f"repository:{world.name}:{actions}")
        async with world.install.connect() as docker:
            for reference in (digest, "v1"):
                path = f"/v2/{world.name}/manifests/{reference}"
                answer = await docker.delete(path, headers=bearer(token))
                assert answer.status_code == status, answer.text
                assert 'scope="repository:' in answer.headers["www-authenticate"]
    for method, path, body in (
        ("DELETE", f"/images/{digest}", None),
        ("DELETE", f"/images/{digest}?force=true", None),
        ("POST", f"/images/{digest}/delete-with-children", {}),
        ("DELETE", "/tags/v1", None),
        ("POST", "/images/batch-delete", {"digests": [digest], "tags": ["v2"]}),
    ):
        headers = bearer(program.access_token)
        answer = await world.control.request(
            method, f"{world.path}{path}", json=body, headers=headers
        )
        refused(answer, 403, "ACCESS_DENIED")
    assert await _state(world) == before


async def test_another_method_is_405_and_changes_nothing(world: World) -> None:
    """Of every path below ``/v1/repositories``."""

    digest = (await world.push_image("one", "v1"))["digest"]
    before = await _state(world)
    names = {"repository_id": world.repository_id, "digest": digest, "tag": "v1"}
    described = (await world.control.get("/v1/openapi.json")).json()["paths"]
    asked = 0
    for template, operations in described.items():
        if not template.startswith("/v1/repositories"):
            continue
        path = template.format_map(_Names(names))
        there = {method.upper() for method in operations}
        for method in set(METHODS) - there:
            answer = await world.control.request(method, path, json={})
            refused(answer, 405, "METHOD_NOT_ALLOWED")
            allowed = there | ({"HEAD"} if "GET" in there else set())
            assert set(answer.headers["allow"].split(", ")) == allowed, (method, path)
            asked += 1
    assert asked > 100
    assert await _state(world) == before


class _Names(dict[str, str]):
    """Parameters of paths; those that do not matter are made up."""

    def __missing__(self, name: str) -> str:
        return "01890000-0000-7000-8000-000000000000" if name.endswith("_id") else "x"

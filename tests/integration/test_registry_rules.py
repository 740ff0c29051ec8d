"""The registry's rules 1 to 8 (part 1, "Registry behaviour rules"), on both planes.

That tags move, and what is left when images and tags are deleted (rules 2 to 4), is proved by
`tests.property.test_control_model`.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from registry.oci.digest import digest_of
from tests.integration.images_world import open_world
from tests.integration.pushing import World, refused
from tests.memory_store import MemoryStore
from tests.tenants import allow, bearer, document, let

PLANES = ("/v1", "/v2")


async def delete_tag(world: World, plane: str, tag: str) -> httpx.Response:
    if plane == "/v1":
        return await world.control.delete(f"{world.path}/tags/{tag}")
    return await world.docker.delete(f"/v2/{world.name}/manifests/{tag}")


async def point_tag(world: World, plane: str, tag: str, document: dict[str, Any]) -> httpx.Response:
    """Point a tag to an image that is in the repository already."""
    body = json.dumps(document).encode()
    if plane == "/v1":
        path = f"{world.path}/tags/{tag}"
        return await world.control.put(path, json={"digest": digest_of(body)})
    return await world.docker.put(
        f"/v2/{world.name}/manifests/{tag}",
        content=body,
        headers={"content-type": document["mediaType"]},
    )


def is_tag_refused(answer: httpx.Response, plane: str, status: int, code: str) -> bool:
    """Say whether an answer refuses as it must: 409 here, and there as status and code say."""
    found = answer.json()
    if plane == "/v1":
        return answer.status_code == 409 and found["error"]["code"] == "CONFLICT"
    return answer.status_code == status and found["errors"][0]["code"] == code


async def test_rule_1_the_same_content_again_changes_nothing(world: World) -> None:
    image = await world.image_document("one", "two")
    pushed = await world.push(image, "v1")
    assert pushed["digest"] == f"sha256:{digest_of(json.dumps(image).encode())[7:]}"
    before = await world.get("/images"), await world.get("/tags"), await world.record()
    world.install.clock.advance(60)
    again = await world.image_document("one", "two")
    assert await world.push(again, "v1") == pushed
    put = await point_tag(world, "/v1", "v1", image)
    assert put.status_code == 200
    assert put.json()["tag"] == before[1]["tags"][0]
    after = await world.get("/images"), await world.get("/tags"), await world.record()
    assert before == after
    assert before[0]["images"][0]["digest"] == pushed["digest"]
    raw = await world.control.get(f"{world.images}/{pushed['digest']}/manifest")
    assert str(digest_of(raw.content)) == pushed["digest"]


@pytest.mark.parametrize("plane", PLANES)
async def test_rule_2_an_immutable_repositorys_tags_stay(metadata_url: str, plane: str) -> None:
    async with open_world(
        metadata_url, tag_mutability="immutable", immutable_tag_exclusions=["dev-*"]
    ) as world:
        first, second = await world.image_document("one"), await world.image_document("two")
        await world.push(first, "v1", "dev-1")
        pushed = await world.push(second)

        moved = await point_tag(world, plane, "v1", second)
        assert is_tag_refused(moved, plane, 409, "DENIED"), moved.text
        if plane == "/v1":
            assert moved.json()["error"]["params"]["tag"] == "v1"
        assert (
            f"The image tag 'v1' already exists in the '{world.name.partition('/')[2]}' repository "
            "and cannot be overwritten because the repository is immutable." in moved.text
        )
        deleted = await delete_tag(world, plane, "v1")
        assert is_tag_refused(deleted, plane, 405, "UNSUPPORTED"), deleted.text
        assert (await world.get("/tags/v1"))["tag"]["digest"] != pushed["digest"]
        assert (await world.get("/tags/v1"))["tag"]["mutable"] is False
        assert await world.tags() == ["dev-1", "v1"]

        assert (await point_tag(world, plane, "v1", first)).status_code in (200, 201)
        assert (await point_tag(world, plane, "v2", second)).status_code == 201
        assert (await point_tag(world, plane, "dev-1", second)).status_code in (200, 201)
        assert (await world.get("/tags/dev-1"))["tag"]["digest"] == pushed["digest"]
        assert (await world.get("/tags/dev-1"))["tag"]["mutable"] is True
        assert (await delete_tag(world, plane, "dev-1")).status_code in (202, 204)
        await world.delete(pushed["digest"])
        assert await world.tags() == ["v1"]


async def test_rule_3_what_lists_an_image_is_told_to_who_would_delete_it(world: World) -> None:
    child = await world.push_image("one")
    index = await world.push_index([child], "v1")
    answer = await world.control.delete(f"{world.images}/{child['digest']}")
    assert refused(answer, 409, "CONFLICT")["parents"] == [index["digest"]]
    answer = await world.docker.delete(f"/v2/{world.name}/manifests/{child['digest']}")
    assert (answer.status_code, index["digest"] in answer.text) == (405, True)


async def test_rule_5_a_blob_counts_once_for_each_repository(world: World) -> None:
    other = await world.another("other")
    store = world.install.ctx.reader
    assert isinstance(store, MemoryStore)
    for each in (other, world):
        # {} is the config of all: two bytes, once.
        pushed = [
            await each.push(await each.image_document("shared", "a")),
            await each.push(await each.image_document("shared", "bb")),
        ]
        assert (await each.record())["size_bytes"] == 2 + 6 + 1 + 2
    assert len(store.files.objects) == 4
    sizes = {each["digest"]: each["size_bytes"] for each in (await world.get("/images"))["images"]}
    first, second = pushed
    assert sizes == {first["digest"]: 2 + 6 + 1, second["digest"]: 2 + 6 + 2}
    index = await world.push_index(pushed)
    found = (await world.get(f"/images/{index['digest']}"))["image"]
    assert found["size_bytes"] == 2 + 6 + 1 + 2
    await world.delete(index["digest"])
    await world.delete(second["digest"])
    assert (await world.record())["size_bytes"] == 2 + 6 + 1
    assert (await other.record())["size_bytes"] == 2 + 6 + 1 + 2


async def test_rule_6_deleting_an_image_frees_no_bytes_at_once(world: World) -> None:
    other = await world.another("other")
    image = await world.push_image("shared", "v1")
    await other.push_image("shared", "v1")
    store = world.install.ctx.reader
    assert isinstance(store, MemoryStore)
    kept = set(store.files.objects)
    await world.delete(image["digest"])
    assert set(store.files.objects) == kept
    assert (await world.record())["size_bytes"] == 0
    assert await other.pulls("v1")
    layer = await other.docker.get(f"/v2/{other.name}/blobs/{digest_of(b'shared')}")
    assert layer.content == b"shared"


async def test_rule_7_a_repository_is_private_until_a_policy_lets_others_in(world: World) -> None:
    await world.push_image("one", "v1")
    stranger = await world.install.add_account("stranger")
    program = await world.install.add_program(stranger, "ci", allow("registry:*"))
    password = await world.install.login(program)
    visitor = world.install.connect(41_000)

    async def pulls(password: str | None) -> int:
        scope = f"repository:{world.name}:pull"
        token = await world.install.exchange(password, scope)
        path = f"/v2/{world.name}/manifests/v1"
        return (await visitor.get(path, headers=bearer(token))).status_code

    async def describes() -> int:
        answer = await visitor.get(world.images, headers=bearer(program.access_token))
        return answer.status_code

    assert (await world.record())["visibility"] == "private"
    assert (await pulls(None), await pulls(password), await describes()) == (401, 403, 404)

    policy = f"{world.path}/policy"
    public = document(let("*"))
    assert (await world.control.put(policy, json=public)).status_code == 200
    assert (await world.record())["visibility"] == "public"
    assert (await pulls(None), await pulls(password), await describes()) == (200, 200, 404)

    shared = document(let(stranger.id, actions=("registry:PullImage", "registry:DescribeImages")))
    assert (await world.control.put(policy, json=shared)).status_code == 200
    assert (await pulls(None), await pulls(password), await describes()) == (401, 200, 200)

    assert (await world.control.delete(policy)).status_code == 204
    assert (await pulls(None), await pulls(password), await describes()) == (401, 403, 404)


async def test_rule_8_another_account_needs_both_policies_on_both_planes(world: World) -> None:
    image = await world.push_image("one", "v1")
    partner = await world.install.add_account("partner")
    visitor = world.install.connect(41_000)
    actions = ("registry:PullImage", "registry:DescribeImages", "registry:PushImage")

    async def may(identity: bool, resource: bool) -> tuple[int, int, int]:
        """Return how a pull, a list and a retag end."""
        name = f"p{identity}{resource}".lower()
        statements = [allow(*actions)] if identity else []
        program = await world.install.add_program(partner, name, *statements)
        policy = document(let(partner.id if resource else world.account.id, actions=actions))
        put = await world.control.put(f"{world.path}/policy", json=policy)
        assert put.status_code == 200, put.text
        password = await world.install.login(program)
        token = await world.install.exchange(password, f"repository:{world.name}:pull")
        manifest = f"/v2/{world.name}/manifests/v1"
        headers = bearer(program.access_token)
        retag = f"{world.path}/tags/theirs"
        body = {"digest": image["digest"]}
        return (
            (await visitor.get(manifest, headers=bearer(token))).status_code,
            (await visitor.get(world.images, headers=headers)).status_code,
            (await visitor.put(retag, json=body, headers=headers)).status_code,
        )

    # Who may describe no image anywhere is not told whether this one is here.
    assert await may(False, False) == (403, 403, 403)
    assert await may(False, True) == (403, 403, 403)
    assert await may(True, False) == (403, 404, 404)
    assert await may(True, True) == (200, 200, 201)
    assert await world.tags() == ["theirs", "v1"]

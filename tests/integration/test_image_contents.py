"""What is inside images, as ``/v1`` tells it when asked: platforms and configurations."""

from __future__ import annotations

import json
from typing import Any, Final

from cloudcore.db.base import Connection
from cloudcore.objects.damage import DIGEST
from registry.metadata.blobs.objects import BLOB_ROWS, linked_object
from registry.oci.image_contents import MAX_CONFIGURATION_BYTES
from tests.databases import on_both_databases
from tests.integration.pushing import Descriptor, World, refused, signed_in
from tests.tenants import ALLOW_ALL, let

STEPS: Final[list[dict[str, Any]]] = [
    {"created": "2026-01-01T00:00:00Z", "created_by": "COPY . /app", "comment": "c"},
    {"created_by": "ENTRYPOINT", "empty_layer": True},
]
WHOLE: Final = {
    "architecture": "arm",
    "os": "linux",
    "variant": "v7",
    "created": "2026-01-01T00:00:00Z",
    "author": "someone",
    "config": {
        "User": "app",
        "WorkingDir": "/app",
        "Entrypoint": ["/init"],
        "Cmd": ["serve"],
        "Env": ["PATH=/bin", "EMPTY="],
        "ExposedPorts": {"8080/tcp": {}, "53/udp": {}},
        "Labels": {"org.example": "yes"},
    },
    "history": STEPS,
}


async def push(world: World, config: str, name: str, *tags: str) -> Descriptor:
    return await world.push(await world.image_document(name, config=config), *tags)


async def configuration_of(world: World, image: Descriptor) -> Any:  # noqa: ANN401 - JSON
    found = await world.get(f"/images/{image['digest']}", include="configuration")
    return found["image"]["configuration"]


async def platforms(world: World) -> dict[str, list[str]]:
    found = await world.get("/images", include="platforms")
    return {each["digest"]: each["platforms"] for each in found["images"]}


@on_both_databases
async def test_a_configuration_is_told_if_asked_for(world: World) -> None:
    image = await push(world, json.dumps(WHOLE), "layer")
    assert "configuration" not in (await world.get(f"/images/{image['digest']}"))["image"]
    assert await configuration_of(world, image) == {
        "platform": "linux/arm/v7",
        "created": "2026-01-01T00:00:00Z",
        "author": "someone",
        "user": "app",
        "working_dir": "/app",
        "entrypoint": ["/init"],
        "cmd": ["serve"],
        "env": ["PATH=/bin", "EMPTY="],
        "exposed_ports": ["8080/tcp", "53/udp"],
        "labels": {"org.example": "yes"},
        "history": [
            {"created": None, "comment": "", "empty_layer": False, **STEPS[0]},
            {"created": None, "comment": "", **STEPS[1]},
        ],
    }


UNREADABLE: Final = {
    "empty": "",
    "artifact": "{}",
    "deep": "[" * 50_000,
    "other types": '{"os": 1}',
    "other parts": '{"os": "linux", "config": {"Env": "PATH"}}',
    "large": '{"os": "' + "x" * MAX_CONFIGURATION_BYTES + '"}',
}


async def test_one_that_cannot_be_read_is_null(world: World) -> None:
    images = {name: await push(world, config, name) for name, config in UNREADABLE.items()}
    for name, image in images.items():
        assert await configuration_of(world, image) is None, name
    assert await platforms(world) == {image["digest"]: [] for image in images.values()}


async def test_one_that_leaves_most_out_is_told(world: World) -> None:
    image = await push(world, '{"os": "linux", "config": {"Env": null}, "history": null}', "layer")
    found = await configuration_of(world, image)
    assert found["platform"] == "linux"
    assert (found["created"], found["env"], found["labels"], found["history"]) == (None, [], {}, [])


async def test_one_whose_bytes_are_damaged_is_null(world: World) -> None:
    image = await push(world, json.dumps(WHOLE), "layer")
    listed = await world.get(f"/images/{image['digest']}")
    digest = listed["image"]["config_digest"]

    def damage(tx: Connection) -> None:
        found = linked_object(tx, world.repository_id, digest)
        assert found is not None
        assert BLOB_ROWS.mark(tx, world.account.id, found.id, found.verified_at, DIGEST, 1)

    await world.install.database.write(damage)
    assert await configuration_of(world, image) is None
    assert await platforms(world) == {image["digest"]: []}


@on_both_databases
async def test_a_list_tells_platforms_if_asked_for(world: World) -> None:
    arm = await push(world, json.dumps(WHOLE), "arm")
    amd = await push(world, '{"os": "linux", "architecture": "amd64"}', "amd")
    parts = [
        {**arm, "platform": {"os": "linux", "architecture": "arm", "variant": "v7"}},
        {**amd, "platform": {"os": "linux", "architecture": "amd64"}},
        {**amd, "platform": {"os": "linux", "architecture": "amd64", "os.version": "2"}},
    ]
    index = await world.push_index(parts)
    assert await platforms(world) == {
        index["digest"]: ["linux/arm/v7", "linux/amd64"],
        amd["digest"]: ["linux/amd64"],
        arm["digest"]: ["linux/arm/v7"],
    }
    assert await configuration_of(world, index) is None
    assert not any("platforms" in each for each in (await world.get("/images"))["images"])


async def test_nothing_else_can_be_included(world: World) -> None:
    image = await push(world, "{}", "layer")
    for path in (f"{world.images}?include=", f"{world.images}?include=configuration"):
        refused(await world.control.get(path), 400, "INVALID_INPUT", "include")
    path = f"{world.images}/{image['digest']}?include=platforms"
    refused(await world.control.get(path), 400, "INVALID_INPUT", "include")


async def test_whom_a_repository_lets_see_its_images_sees_this(world: World) -> None:
    image = await push(world, json.dumps(WHOLE), "layer")
    partner = await world.install.add_account("partner")
    program = await world.install.add_program(partner, "ci", ALLOW_ALL)
    path = f"{world.images}/{image['digest']}?include=configuration"
    client = signed_in(world.install, program)
    refused(await client.get(path), 404, "NOT_FOUND")
    seen = let("partner", actions=["registry:DescribeImages"])
    await world.install.share(world.repository_id, world.account, seen)
    answer = await client.get(path)
    assert answer.json()["image"]["configuration"]["platform"] == "linux/arm/v7"

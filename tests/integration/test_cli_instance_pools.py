"""``entrepot instance-pools`` and ``instances``, of a registry that runs what was pushed to it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.busybox_images import busybox_image, push_as
from tests.integration.cli_world import World, cli_world
from tests.tools import missing, require_tool
from tests.waiting import until

TRUST = {"effect": "allow", "principals": ["crn:iam:::service/compute"]}
ALL = {"effect": "allow", "actions": ["*"], "resources": ["*"]}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if os.geteuid() != 0:
        missing("root, for runc")
    require_tool("runc")
    folder = tmp_path_factory.mktemp("world")
    with cli_world(folder, ENTREPOT_COMPUTE_DRIVER="runc") as made:
        yield made


def give_role(world: World) -> None:
    """Make a role that instances may act in, and that may do everything."""
    trust = {"version": "1", "statements": [TRUST]}
    role = world._post("/v1/roles", name="runs", trust_policy=trust)["role"]
    document = {"version": "1", "statements": [ALL]}
    policy = world._post("/v1/policies", name="runs", document=document)["policy"]
    world._post(f"/v1/policies/{policy['id']}/attachments", role=role["id"])


def test_a_pool_is_made_seen_and_deleted_and_the_output_of_its_instance_read(world: World) -> None:
    login = world._post("/v1/authorization-token")
    world.done("repositories", "create", "web")
    image = busybox_image("sh", "-c", 'echo "by $WHO"; trap exit TERM; sleep 600 & wait')
    pair = login["username"], login["password"]
    push_as(world.install.url, pair, "acme/web", "1", image)
    give_role(world)
    made = world.done(
        *("instance-pools", "create", "web", "--image", "web:1", "--role", "runs"),
        *("--environment", "WHO=us", "--port", "8080", "--port", "8081", "--memory-mb", "64"),
    )
    assert made.text == "web is provisioning; 'entrepot instances list web' shows what runs\n"
    shown = world.read("instance-pools", "show", "web")
    assert (shown["ports"], shown["environment"]) == ([8080, 8081], {"WHO": "us"})

    def written() -> list[str]:
        ids = world.done("instances", "list", "web", "--quiet").text.split()
        return ids if ids and world.run("instances", "logs", "web", ids[0]).out else []

    ids = until(written, lambda: world.read("instance-pools", "show", "web")["faults"], pause=0.1)
    assert world.done("instances", "logs", "web", ids[0]).text == "by us\n"
    assert world.done("instances", "logs", "web", ids[0], "--tail", "3").text == "us\n"
    assert world.read("instances", "show", "web", ids[0])["image_digest"] == image.digest
    assert world.done("instance-pools", "update", "web", "--size", "0").text == "Changed web\n"
    assert world.done("instance-pools", "delete", "web", "--yes").text == "Deleted web\n"
    until(lambda: "web" not in world.done("instance-pools", "list", "--quiet").text, pause=0.1)

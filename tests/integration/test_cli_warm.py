"""``entrepot mirrors warm`` fills the cache of a served install from an upstream."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from tests.integration.cli_world import World, cli_world
from tests.scripted_upstream import ScriptedUpstream, digest_of, scripted_upstream


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    with scripted_upstream() as served:
        yield served


@pytest.fixture(scope="module")
def world(upstream: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    allowed = {"ENTREPOT_UPSTREAM_ALLOWED": upstream.url}
    with (
        patch.dict("os.environ", allowed),
        cli_world(tmp_path_factory.mktemp("world")) as made,
    ):
        yield made


def test_images_are_pulled_once_and_then_found(world: World, upstream: ScriptedUpstream) -> None:
    digest = upstream.add_image("team/app", "v1", b"one" * 1000, b"two" * 1000)
    world.done("mirrors", "create", "up", "--upstream", upstream.url)
    tested = world.run("mirrors", "test", "up", "team/app:v1")
    assert (tested.status, tested.text[:2]) == (0, "ok")
    warmed = world.read("mirrors", "warm", "up/team/app:v1", f"{world.host}/acme/up/team/app:v1")
    for image in warmed["images"]:
        assert (image["digest"], image["failure"]) == (digest, None)
        assert (image["manifests"], image["blobs"]) == (1, 3)
        assert image["size_bytes"] > 6000
    asked = [
        each.path
        for each in upstream.asked
        if each.method == "GET" and each.path.startswith("/v2/team/app/blobs/")
    ]
    assert len(asked) == len(set(asked)) == 3

    failed = world.run("mirrors", "warm", "up/team/none", "up/team/app:v1")
    assert failed.status == 1
    assert "MANIFEST_UNKNOWN" in failed.text


def test_an_index_is_pulled_for_the_wanted_platforms(
    world: World, upstream: ScriptedUpstream
) -> None:
    one = upstream.add_image("team/many", None, b"arm" * 1000)
    upstream.add_index("team/many", "v1", one)
    world.run("mirrors", "create", "many", "--upstream", upstream.url)
    other = world.run("mirrors", "warm", "many/team/many:v1", "--platform", "plan9/mips")
    assert other.status == 1
    assert "other platforms" in other.text
    found = world.read("mirrors", "warm", "many/team/many:v1", "--platform", "all")
    assert found["images"][0]["manifests"] == 2
    assert world.told("mirrors", "warm", "many/team/many:v1", "--platform", "arm64")[0] == 2


def test_an_index_of_indexes_is_pulled_to_the_images(
    world: World, upstream: ScriptedUpstream
) -> None:
    image = upstream.add_image("team/deep", None, b"deep" * 1000)
    inner = upstream.add_index("team/deep", None, image)
    upstream.add_index("team/deep", "v1", inner)
    world.run("mirrors", "create", "deep", "--upstream", upstream.url)
    warmed = world.read("mirrors", "warm", "deep/team/deep:v1", "--platform", "linux/amd64")
    found = warmed["images"][0]
    assert (found["manifests"], found["blobs"], found["failure"]) == (3, 2, None)
    other = world.run("mirrors", "warm", "deep/team/deep:v1", "--platform", "plan9/mips")
    assert other.status == 1
    assert "other platforms" in other.text


def test_a_blob_that_is_cut_off_is_not_pulled(world: World, upstream: ScriptedUpstream) -> None:
    layer = b"right" * 100_000
    upstream.add_image("team/wrong", "v1", layer)
    upstream.blobs[digest_of(layer)] = b"wrong" * 100_000
    world.run("mirrors", "create", "wrong", "--upstream", upstream.url)
    warmed = world.run("mirrors", "warm", "wrong/team/wrong:v1")
    assert warmed.status == 1
    assert "cut off" in warmed.text

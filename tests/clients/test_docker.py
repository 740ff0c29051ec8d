"""Docker: its engine on a private socket and data root, driven by its own client."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.archives import files_in_image, write_docker_archive
from tests.clients.docker_engine import Docker
from tests.clients.images import DOCKER, MIB, NATIVE, OCI, Image, MediaTypes, Store, noise
from tests.clients.remote import Remote

pytestmark = pytest.mark.client("docker")


def load(docker: Docker, image: Image, workspace: Path, reference: str) -> None:
    archive = workspace / "loaded.tar"
    write_docker_archive(image, archive, reference)
    docker.run("load", "--input", archive)
    archive.unlink()


def forget(docker: Docker, *references: str) -> None:
    docker.run("rmi", "--force", *references)


def test_a_pushed_image_comes_back_the_same(
    docker: Docker, store: Store, remote: Remote, workspace: Path
) -> None:
    # More layers than the engine moves at a time, one of them with an empty file.
    layers = [{f"lib/{number}": noise(MIB, number)} for number in range(8)]
    image = store.image([*layers, {"etc/motd": b"hi", "none": b""}])
    reference = f"{remote.reference}:1"
    load(docker, image, workspace, "local:1")
    docker.run("tag", "local:1", reference)
    pushed = docker.run("push", reference)
    before = docker.inspect(reference)
    forget(docker, "local:1", reference)
    assert docker.attempt("image", "inspect", str(before["Id"])).returncode != 0
    docker.run("pull", reference)
    after = docker.inspect(reference)

    assert f"1: digest: {remote.digest('1')} " in pushed
    assert after["Id"] == before["Id"] == image.blobs[0]
    assert after["RepoDigests"] == [f"{remote.reference}@{remote.digest('1')}"]
    assert docker.files(reference) == files_in_image(image)


@pytest.mark.timeout(300)
def test_an_image_of_a_large_layer_comes_back_the_same(
    docker: Docker, store: Store, remote: Remote, workspace: Path
) -> None:
    image = store.image([{"large": noise(24 * MIB, "large")}])
    reference = f"{remote.reference}:large"
    load(docker, image, workspace, reference)
    docker.run("push", reference)
    forget(docker, reference)
    docker.run("pull", reference)
    assert docker.inspect(reference)["Id"] == image.blobs[0]
    forget(docker, reference)


def test_a_second_push_sends_no_layer_and_another_repository_mounts_it(
    docker: Docker, store: Store, remote: Remote, workspace: Path
) -> None:
    sibling = remote.sibling("copy")
    image = store.image([{"layer": noise(MIB, "mounted")}])
    load(docker, image, workspace, f"{remote.reference}:1")
    docker.run("tag", f"{remote.reference}:1", f"{sibling.reference}:1")

    assert ": Pushed" in docker.run("push", f"{remote.reference}:1")
    assert ": Layer already exists" in docker.run("push", f"{remote.reference}:1")
    assert f": Mounted from {remote.name}" in docker.run("push", f"{sibling.reference}:1")
    assert sibling.digest("1") == remote.digest("1")


@pytest.mark.parametrize("types", [OCI, DOCKER], ids=["oci", "docker"])
def test_its_platform_is_pulled_out_of_many(
    docker: Docker, store: Store, remote: Remote, types: MediaTypes
) -> None:
    images = {
        cpu: store.image([{"cpu": cpu.encode()}], types=types, architecture=cpu)
        for cpu in ("amd64", "arm64")
    }
    index = store.index(list(images.values()), types=types)
    remote.push(index, "many")
    reference = f"{remote.reference}:many"
    docker.run("pull", reference)
    shown = docker.inspect(reference)

    assert shown["Id"] == images[NATIVE].blobs[0]
    assert f"{remote.reference}@{index.digest}" in shown["RepoDigests"]


def test_a_pull_by_digest_gets_that_image_after_the_tag_moved(
    docker: Docker, store: Store, remote: Remote
) -> None:
    old, new = (store.image([{"version": version}]) for version in (b"old", b"new"))
    remote.push(old, "1")
    remote.push(new, "1")
    docker.run("pull", f"{remote.reference}@{old.digest}")
    docker.run("pull", f"{remote.reference}:1")
    assert docker.inspect(f"{remote.reference}@{old.digest}")["Id"] == old.blobs[0]
    assert docker.inspect(f"{remote.reference}:1")["Id"] == new.blobs[0]


def test_all_tags_are_pushed_and_pulled(
    docker: Docker, store: Store, remote: Remote, workspace: Path
) -> None:
    images = {tag: store.image([{"tag": tag.encode()}]) for tag in ("a", "b", "c")}
    for tag, image in images.items():
        load(docker, image, workspace, f"{remote.reference}:{tag}")
    docker.run("push", "--all-tags", remote.reference)
    forget(docker, *(f"{remote.reference}:{tag}" for tag in images))
    docker.run("pull", "--all-tags", remote.reference)
    for tag, image in images.items():
        assert docker.inspect(f"{remote.reference}:{tag}")["Id"] == image.blobs[0]


def test_absence_is_told_in_words_docker_understands(
    docker: Docker, store: Store, remote: Remote
) -> None:
    remote.push(store.image([{"a": b"a"}]), "1")
    no_tag = docker.attempt("pull", f"{remote.reference}:none").stderr
    no_repository = docker.attempt("pull", f"{remote.sibling('none').reference}:1").stderr

    assert f"manifest for {remote.reference}:none not found" in no_tag
    assert f"{remote.sibling('none').reference} not found" in no_repository

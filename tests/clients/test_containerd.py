"""containerd: ``ctr`` on private daemons, one that pushes and a clean one that pulls."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.archives import files_in_archive, files_in_image
from tests.clients.containerd import Containerd, load, running_containerd
from tests.clients.images import DOCKER, MIB, OCI, MediaTypes, Store, noise
from tests.clients.remote import Remote

pytestmark = pytest.mark.client("containerd")


@pytest.fixture
def containerd() -> Iterator[Containerd]:
    with running_containerd() as machine:
        yield machine


@pytest.fixture
def clean_containerd() -> Iterator[Containerd]:
    with running_containerd() as machine:
        yield machine


def pull(machine: Containerd, reference: str, *options: str) -> None:
    machine.ctr("images", "pull", "--plain-http", "--snapshotter", "native", *options, reference)


@pytest.mark.parametrize("types", [OCI, DOCKER], ids=["oci", "docker"])
def test_an_image_reaches_another_machine(
    containerd: Containerd,
    clean_containerd: Containerd,
    store: Store,
    remote: Remote,
    workspace: Path,
    types: MediaTypes,
) -> None:
    image = store.image([{"bin/hello": noise(4 * MIB, types)}, {"etc/motd": b"hi"}], types=types)
    reference = f"{remote.reference}:1"
    load(containerd, image, workspace, reference)
    containerd.ctr("images", "push", "--plain-http", reference)
    pull(clean_containerd, reference)
    clean_containerd.ctr("images", "export", workspace / "pulled.tar", reference)

    assert remote.digest("1") == image.digest
    assert image.digest in clean_containerd.ctr("images", "list", f"name=={reference}")
    assert files_in_archive(workspace / "pulled.tar") == files_in_image(image)


@pytest.mark.parametrize("types", [OCI, DOCKER], ids=["oci", "docker"])
def test_every_platform_reaches_another_machine(
    containerd: Containerd,
    clean_containerd: Containerd,
    store: Store,
    remote: Remote,
    workspace: Path,
    types: MediaTypes,
) -> None:
    images = [
        store.image([{"cpu": cpu.encode()}], types=types, architecture=cpu)
        for cpu in ("amd64", "arm64", "riscv64")
    ]
    image = store.index(images, types=types)
    reference = f"{remote.reference}:many"
    load(containerd, image, workspace, reference)
    containerd.ctr("images", "push", "--plain-http", reference)
    pull(clean_containerd, reference, "--all-platforms")

    assert remote.digest("many") == image.digest
    assert remote.holds(image)
    stored = clean_containerd.ctr("content", "list", "--quiet").split()
    assert {blob for one in images for blob in one.blobs} <= set(stored)


def test_the_layers_of_an_artifact_are_fetched(  # none of 0 bytes: containerd refuses those
    containerd: Containerd, store: Store, remote: Remote, workspace: Path
) -> None:
    artifact = store.artifact([b"1", noise(40 * MIB, "ctr")], artifact_type="application/x-noise")
    remote.push(artifact, "1")
    containerd.ctr("content", "fetch", "--plain-http", f"{remote.reference}:1")
    for blob in artifact.blobs:
        target = workspace / "fetched"
        with target.open("wb") as file:
            command = ["ctr", "--address", f"{containerd.folder}/socket", "content", "get", blob]
            subprocess.run(command, stdout=file, check=True)
        assert target.read_bytes() == store.read(blob)


def test_a_push_to_another_repository_mounts(
    containerd: Containerd, store: Store, remote: Remote
) -> None:
    image = store.image([{"a": noise(MIB, "mounted")}])
    remote.push(image, "1")
    pull(containerd, f"{remote.reference}:1")
    sibling = remote.sibling("copy")
    containerd.ctr("images", "tag", f"{remote.reference}:1", f"{sibling.reference}:1")
    done = containerd.attempt(
        "images", "push", "--plain-http", "--http-dump", f"{sibling.reference}:1"
    )
    assert done.returncode == 0, done.stderr
    assert f"&from={remote.name} HTTP" in done.stderr
    assert f"PUT {sibling.base}/blobs/uploads/" not in done.stderr
    assert sibling.holds(image)


def test_a_push_over_a_tag_moves_it(
    containerd: Containerd, store: Store, remote: Remote, workspace: Path
) -> None:
    old, new = (store.image([{"version": version}]) for version in (b"old", b"new"))
    reference = f"{remote.reference}:1"
    remote.push(old, "1")
    load(containerd, new, workspace, reference)
    containerd.ctr("images", "push", "--plain-http", reference)
    assert remote.digest("1") == new.digest
    assert remote.digest(old.digest) == old.digest

"""podman: images pushed from one storage and pulled into another that knows nothing of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients.archives import files_in_archive, files_in_image, write_docker_archive
from tests.clients.containers import Containers
from tests.clients.images import DOCKER, MIB, NATIVE, OCI, Image, MediaTypes, Store, noise
from tests.clients.programs import require_root
from tests.clients.remote import Remote

pytestmark = pytest.mark.client("podman")


@pytest.fixture
def podman(containers: Containers) -> Containers:
    require_root("podman")
    return containers


def load(podman: Containers, image: Image, workspace: Path, name: str) -> str:
    write_docker_archive(image, workspace / "loaded.tar", name)
    podman.run("podman", "load", "--input", workspace / "loaded.tar")
    return image_id(podman, name)


def image_id(podman: Containers, name: str) -> str:
    return podman.run("podman", "image", "inspect", "--format", "{{.Id}}", name).strip()


def push(podman: Containers, source: str, remote: Remote, tag: str, *options: str) -> None:
    target = f"docker://{remote.reference}:{tag}"
    podman.run("podman", "push", *options, source, target)


def pull(podman: Containers, reference: str, *options: str) -> str:
    return podman.run("podman", "pull", "--quiet", *options, reference)


def saved_files(podman: Containers, name: str, workspace: Path) -> dict[str, str]:
    archive = workspace / "saved.tar"
    podman.run("podman", "save", "--format", "docker-archive", "--output", archive, name)
    return files_in_archive(archive)


@pytest.mark.parametrize(
    ("option", "types"), [("oci", OCI), ("v2s2", DOCKER)], ids=["oci", "docker"]
)
def test_an_image_reaches_another_machine_in_either_format(
    podman: Containers,
    elsewhere: Containers,
    store: Store,
    remote: Remote,
    workspace: Path,
    option: str,
    types: MediaTypes,
) -> None:
    image = store.image([{"bin/hello": noise(2 * MIB, option)}, {"etc/motd": b"hi", "empty": b""}])
    load(podman, image, workspace, "local/hello:1")
    digest_file = workspace / "digest"
    push(podman, "local/hello:1", remote, "1", "--format", option, "--digestfile", str(digest_file))
    pulled = pull(elsewhere, f"{remote.reference}:1").strip()

    assert remote.digest("1") == digest_file.read_text()
    assert remote.manifest("1").headers["Content-Type"] == types.manifest
    shown = json.loads(elsewhere.run("podman", "image", "inspect", pulled))[0]
    assert shown["Digest"] == digest_file.read_text()
    assert saved_files(elsewhere, pulled, workspace) == files_in_image(image)


def test_a_pull_by_digest_gets_that_image_after_the_tag_moved(
    podman: Containers, store: Store, remote: Remote
) -> None:
    old, new = (store.image([{"version": version}]) for version in (b"old", b"new"))
    remote.push(old, "1")
    remote.push(new, "1")
    pull(podman, f"{remote.reference}@{old.digest}")
    pull(podman, f"{remote.reference}:1")

    def config_of(reference: str) -> str:
        return f"sha256:{image_id(podman, remote.reference + reference)}"

    assert config_of(f"@{old.digest}") == old.blobs[0]
    assert config_of(":1") == new.blobs[0]


def test_a_second_push_mounts_what_the_first_brought(
    podman: Containers, store: Store, remote: Remote, workspace: Path
) -> None:
    image = store.image([{"a": noise(MIB, "podman")}])
    load(podman, image, workspace, "local/hello:1")
    push(podman, "local/hello:1", remote, "1")
    sibling = remote.sibling("copy")
    done = podman.attempt(
        *("podman", "--log-level", "debug", "push"),
        *("local/hello:1", f"docker://{sibling.reference}:1"),
    )
    assert done.returncode == 0, done.stderr
    assert "mount OK" in done.stderr
    assert sibling.digest("1") == remote.digest("1")


def test_a_manifest_list_is_pushed_with_all_its_platforms(
    podman: Containers, elsewhere: Containers, store: Store, remote: Remote
) -> None:
    images = {
        cpu: store.image([{"cpu": cpu.encode()}], architecture=cpu) for cpu in ("amd64", "arm64")
    }
    podman.run("podman", "manifest", "create", "local/many")
    for cpu, image in images.items():
        remote.sibling(cpu).push(image, "1")
        single = f"docker://{remote.sibling(cpu).reference}:1"
        podman.run("podman", "manifest", "add", "local/many", single)
    podman.run(
        *("podman", "manifest", "push", "--all", "--format", "oci"),
        *("local/many", f"docker://{remote.reference}:many"),
    )
    pull(elsewhere, f"{remote.reference}:many")
    pull(elsewhere, f"{remote.sibling('arm64').reference}:1", "--arch", "arm64")

    pushed = remote.manifest("many").json()
    assert {child["digest"] for child in pushed["manifests"]} == {
        image.digest for image in images.values()
    }
    assert f"sha256:{image_id(elsewhere, f'{remote.reference}:many')}" == images[NATIVE].blobs[0]


def test_every_tag_is_found_and_pulled(podman: Containers, store: Store, remote: Remote) -> None:
    remote.push(store.image([{"v": b"1"}]), "1", "latest")
    remote.push(store.image([{"v": b"2"}]), "2")
    found = podman.run("podman", "search", "--list-tags", remote.reference).splitlines()[1:]
    pull(podman, remote.reference, "--all-tags")
    stored = podman.run("podman", "images", "--format", "{{.Tag}}")

    assert sorted(line.split()[-1] for line in found) == ["1", "2", "latest"]
    assert sorted(stored.split()) == ["1", "2", "latest"]

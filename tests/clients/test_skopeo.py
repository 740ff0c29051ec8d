"""skopeo: every form of image to the registry and back, looked at, deleted, mounted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients.archives import (
    blobs_in_dir,
    files_in_archive,
    files_in_image,
    write_dir,
    write_docker_archive,
    write_layout,
)
from tests.clients.containers import Containers
from tests.clients.images import DOCKER, MIB, OCI, MediaTypes, Store, noise
from tests.clients.remote import Remote

pytestmark = pytest.mark.client("skopeo")

FORMATS = pytest.mark.parametrize("types", [OCI, DOCKER], ids=["oci", "docker"])


@pytest.fixture
def skopeo(containers: Containers) -> Containers:
    return containers


def copy(tool: Containers, source: str, target: str, *options: str) -> str:
    return tool.run("skopeo", "copy", *options, source, target)


def test_an_image_layout_goes_there_and_back(
    skopeo: Containers, store: Store, remote: Remote, workspace: Path
) -> None:
    image = store.image([{"hello": b"hello\n"}, {"etc/motd": noise(3 * MIB, "motd")}])
    write_layout(image, workspace / "pushed")
    copy(skopeo, f"oci:{workspace}/pushed:latest", f"docker://{remote.reference}:1")
    copy(skopeo, f"docker://{remote.reference}:1", f"oci:{workspace}/pulled:latest")

    assert remote.digest("1") == image.digest
    assert remote.holds(image)
    pulled = Store(workspace / "pulled")
    assert [pulled.read(blob) for blob in image.blobs] == [store.read(b) for b in image.blobs]
    assert pulled.read(image.digest) == store.read(image.digest)


@FORMATS
def test_all_platforms_go_there_and_back_in_their_own_format(
    skopeo: Containers, store: Store, remote: Remote, workspace: Path, types: MediaTypes
) -> None:
    shared = {"shared": noise(MIB, types)}
    image = store.index(
        [
            store.image([shared, {"cpu": cpu.encode()}], types=types, architecture=cpu)
            for cpu in ("amd64", "arm64", "s390x")
        ],
        types=types,
    )
    write_dir(image, workspace / "pushed")
    copy(skopeo, f"dir:{workspace}/pushed", f"docker://{remote.reference}:all", "--all")
    copy(skopeo, f"docker://{remote.reference}:all", f"dir:{workspace}/pulled", "--all")

    assert remote.digest("all") == image.digest
    assert remote.manifest("all").headers["Content-Type"] == types.index
    assert blobs_in_dir(workspace / "pulled") == blobs_in_dir(workspace / "pushed")


@FORMATS
def test_one_platform_is_chosen_out_of_many(
    skopeo: Containers, store: Store, remote: Remote, workspace: Path, types: MediaTypes
) -> None:
    images = [
        store.image([{"cpu": cpu.encode()}], types=types, architecture=cpu)
        for cpu in ("amd64", "arm64")
    ]
    remote.push(store.index(images, types=types), "many")
    source = f"docker://{remote.reference}:many"
    skopeo.run(
        *("skopeo", "--override-arch", "arm64", "copy"),
        *(source, f"dir:{workspace}/pulled"),
    )
    assert (workspace / "pulled" / "manifest.json").read_bytes() == store.read(images[1].digest)


def test_a_docker_archive_goes_there_and_back(
    skopeo: Containers, store: Store, remote: Remote, workspace: Path
) -> None:
    image = store.image([{"bin/a": noise(MIB, "a")}, {"bin/b": b"b", "empty": b""}], types=DOCKER)
    write_docker_archive(image, workspace / "pushed.tar", "local/image:1")
    copy(skopeo, f"docker-archive:{workspace}/pushed.tar", f"docker://{remote.reference}:1")
    copy(
        skopeo, f"docker://{remote.reference}:1", f"docker-archive:{workspace}/pulled.tar:local/x:1"
    )

    assert remote.manifest("1").headers["Content-Type"] == DOCKER.manifest
    assert files_in_archive(workspace / "pulled.tar") == files_in_image(image)


@pytest.mark.parametrize("size", [0, 1, 65_536, 32 * MIB], ids=["0", "1", "64k", "32M"])
def test_a_layer_of_any_size_goes_there_and_back(
    skopeo: Containers, store: Store, remote: Remote, workspace: Path, size: int
) -> None:
    artifact = store.artifact([noise(size, "layer")], artifact_type="application/x-noise")
    write_dir(artifact, workspace / "pushed")
    target = f"docker://{remote.reference}:1"
    copy(skopeo, f"dir:{workspace}/pushed", target, "--preserve-digests")
    copy(skopeo, target, f"dir:{workspace}/pulled")

    assert remote.digest("1") == artifact.digest
    assert blobs_in_dir(workspace / "pulled") == blobs_in_dir(workspace / "pushed")


def test_an_artifact_is_found_by_the_image_it_is_about(
    skopeo: Containers, store: Store, remote: Remote, workspace: Path
) -> None:
    image = store.image([{"a": b"a"}])
    report = store.artifact([b"{}"], artifact_type="application/x-report", subject=image)
    for number, pushed in enumerate((report, image)):  # the subject may well come last
        write_dir(pushed, workspace / f"{number}")
        copy(skopeo, f"dir:{workspace}/{number}", f"docker://{remote.reference}:{number}")

    assert [found["digest"] for found in remote.referrers(image.digest)] == [report.digest]


def test_inspect_shows_what_was_pushed(skopeo: Containers, store: Store, remote: Remote) -> None:
    image = store.image([{"a": b"a"}], labels={"purpose": "test"})
    remote.push(image, "first", "second")
    target = f"docker://{remote.reference}:first"
    shown = json.loads(skopeo.run("skopeo", "inspect", target))
    raw = skopeo.run("skopeo", "inspect", "--raw", target)
    config = skopeo.run("skopeo", "inspect", "--config", "--raw", target)

    assert shown["Digest"] == image.digest
    assert sorted(shown["RepoTags"]) == ["first", "second"]
    assert shown["Labels"] == {"purpose": "test"}
    assert shown["Layers"] == image.blobs[1:]
    assert raw.encode() == store.read(image.digest)
    assert config.encode() == store.read(image.blobs[0])


def test_list_tags_sees_every_tag(skopeo: Containers, store: Store, remote: Remote) -> None:
    tags = [f"v{number:04}" for number in range(1_001)]  # one more than a page of ours
    remote.push(store.image([{"a": b"a"}]), *tags)
    shown = skopeo.run("skopeo", "list-tags", f"docker://{remote.reference}")
    assert sorted(json.loads(shown)["Tags"]) == tags


def test_delete_removes_the_image_and_its_tags(
    skopeo: Containers, store: Store, remote: Remote
) -> None:
    image = store.image([{"a": b"a"}])
    remote.push(image, "gone", "gone-too")
    target = f"docker://{remote.reference}:gone"
    skopeo.run("skopeo", "delete", target)

    assert {remote.manifest(ref).status_code for ref in ("gone", "gone-too", image.digest)} == {404}
    assert skopeo.attempt("skopeo", "inspect", target).returncode != 0


def test_a_blob_known_elsewhere_is_mounted(
    skopeo: Containers, store: Store, remote: Remote, workspace: Path
) -> None:
    image = store.image([{"a": noise(MIB, "mounted")}])
    write_layout(image, workspace / "pushed")
    sibling = remote.sibling("copy")
    copy(skopeo, f"oci:{workspace}/pushed:latest", f"docker://{remote.reference}:1")
    done = skopeo.attempt(
        *("skopeo", "--debug", "copy"),
        *(f"oci:{workspace}/pushed:latest", f"docker://{sibling.reference}:1"),
    )
    assert done.returncode == 0, done.stderr
    assert "mount OK" in done.stderr
    assert sibling.holds(image)

"""buildah: images built from nothing, pushed, and pulled into a clean storage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients.containers import Containers
from tests.clients.images import DOCKER, MIB, OCI, MediaTypes, noise, sha256
from tests.clients.programs import require_root
from tests.clients.remote import Remote

pytestmark = pytest.mark.client("buildah")


@pytest.fixture
def buildah(containers: Containers) -> Containers:
    require_root("buildah")
    return containers


def build(buildah: Containers, content: Path, name: str, *options: str) -> None:
    """Build an image of one layer as a script would: from scratch, without a Containerfile."""
    container = buildah.run("buildah", "from", *options, "scratch").strip()
    buildah.run("buildah", "copy", container, content, "/data")
    buildah.run("buildah", "config", "--label", "purpose=test", "--cmd", "/hello", container)
    buildah.run("buildah", "commit", "--rm", container, name)


def files_of(buildah: Containers, image: str) -> dict[str, str]:
    container = buildah.run("buildah", "from", image).strip()
    root = Path(buildah.run("buildah", "mount", container).strip())
    found = {
        str(path.relative_to(root)): sha256(path.read_bytes())
        for path in root.rglob("*")
        if path.is_file()
    }
    buildah.run("buildah", "umount", container)
    return found


@pytest.mark.parametrize(
    ("option", "types"), [("oci", OCI), ("v2s2", DOCKER)], ids=["oci", "docker"]
)
def test_a_built_image_reaches_another_machine(
    buildah: Containers,
    elsewhere: Containers,
    remote: Remote,
    workspace: Path,
    option: str,
    types: MediaTypes,
) -> None:
    content = workspace / "content"
    content.mkdir(exist_ok=True)
    (content / "hello").write_bytes(noise(2 * MIB, option))
    (content / "empty").touch()
    build(buildah, content, "local/built")
    target = f"docker://{remote.reference}:1"
    digest_file = workspace / "digest"
    buildah.run(
        *("buildah", "push", "--format", option, "--digestfile", digest_file),
        *("local/built", target),
    )
    elsewhere.run("buildah", "pull", "--quiet", target)
    shown = json.loads(elsewhere.run("buildah", "inspect", "--type", "image", target[9:]))

    assert remote.digest("1") == digest_file.read_text() == shown["FromImageDigest"]
    assert remote.manifest("1").headers["Content-Type"] == types.manifest
    assert shown["Docker"]["config"]["Labels"]["purpose"] == "test"
    assert files_of(elsewhere, target[9:]) == {
        "data/hello": sha256(noise(2 * MIB, option)),
        "data/empty": sha256(b""),
    }


def test_an_image_is_built_on_one_that_is_only_in_the_registry(
    buildah: Containers, elsewhere: Containers, remote: Remote, workspace: Path
) -> None:
    for name in ("base", "top"):
        (workspace / name).mkdir()
        (workspace / name / name).write_text(name)
    build(buildah, workspace / "base", "local/base")
    buildah.run("buildah", "push", "local/base", f"docker://{remote.reference}:base")
    (workspace / "top" / "Containerfile").write_text(
        f"FROM {remote.reference}:base\nCOPY top /top\n"
    )
    elsewhere.run("buildah", "build", "--tag", "local/top", workspace / "top")
    elsewhere.run("buildah", "push", "local/top", f"docker://{remote.reference}:top")

    base, top = (remote.manifest(tag).json()["layers"] for tag in ("base", "top"))
    assert base[0]["digest"] == top[0]["digest"]
    assert len(top) == 2
    assert files_of(elsewhere, "local/top") == {
        "data/base": sha256(b"base"),
        "top": sha256(b"top"),
    }


def test_a_manifest_list_of_built_images_is_pushed(
    buildah: Containers, remote: Remote, workspace: Path
) -> None:
    content = workspace / "content"
    content.mkdir(exist_ok=True)
    (content / "hello").write_text("hello")
    buildah.run("buildah", "manifest", "create", "local/many")
    for architecture in ("amd64", "arm64"):
        build(buildah, content, f"local/{architecture}", "--arch", architecture)
        buildah.run("buildah", "manifest", "add", "local/many", f"local/{architecture}")
    target = f"docker://{remote.reference}:many"
    buildah.run("buildah", "manifest", "push", "--all", "local/many", target)

    listed = remote.manifest("many").json()["manifests"]
    assert {child["platform"]["architecture"] for child in listed} == {"amd64", "arm64"}
    assert {remote.manifest(child["digest"]).status_code for child in listed} == {200}

"""podman: of a layer that is ``zstd:chunked`` it pulls the files that it lacks, and no others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.clients.containers import PARTIAL, Containers
from tests.clients.images import noise
from tests.clients.programs import require_root
from tests.live import LiveRegistry, start_registry
from tests.tools import missing

pytestmark = pytest.mark.client("podman")

FILES: Final = 60
CHANGED: Final = 2
FILE_BYTES: Final = 150_000


@pytest.fixture
def registry(workspace: Path) -> Iterator[LiveRegistry]:
    """Return a registry whose log has what this test's clients did, and nothing else."""
    started = start_registry(workspace / "data")
    yield started
    started.stop()


@pytest.fixture
def puller(workspace: Path, registry: LiveRegistry) -> Iterator[Containers]:
    """Return a machine that pulls partially."""
    require_root("podman")
    machine = Containers(workspace / "puller", host_of(registry), PARTIAL)
    if machine.attempt("podman", "info").returncode:
        missing("podman cannot store images by overlay here")
    yield machine
    machine.run("podman", "image", "umount", "--all")


def host_of(registry: LiveRegistry) -> str:
    return registry.url.removeprefix("http://")


def content_of(version: int) -> dict[str, bytes]:
    """Return the files of a version of the image; some of the second are not those of the first."""
    return {
        f"{number:02}": noise(FILE_BYTES, f"{number} of {version if number < CHANGED else 1}")
        for number in range(FILES)
    }


def push(machine: Containers, folder: Path, version: int, target: str) -> None:
    folder.mkdir()
    for name, content in content_of(version).items():
        (folder / name).write_bytes(content)
    container = machine.run("buildah", "from", "scratch").strip()
    machine.run("buildah", "copy", container, folder, "/data")
    machine.run("buildah", "commit", "--rm", container, f"local/{version}")
    options = ("--format", "oci", "--compression-format", "zstd:chunked")
    machine.run("buildah", "push", *options, f"local/{version}", f"docker://{target}:{version}")


def test_a_version_with_few_changed_files_moves_little_more_than_those(
    registry: LiveRegistry, puller: Containers, workspace: Path
) -> None:
    target = f"{host_of(registry)}/dev/app"
    builder = Containers(workspace / "builder", host_of(registry))
    for version in (1, 2):
        push(builder, workspace / f"version-{version}", version, target)
    for version in (1, 2):
        image = f"{target}:{version}"
        pulled = puller.attempt("podman", "--log-level", "debug", "pull", image)
        assert pulled.returncode == 0, pulled.stderr
        if "Retrieved partial blob" not in pulled.stderr:
            missing("this podman pulls no part of a layer")
        root = Path(puller.run("podman", "image", "mount", image).strip())
        found = {path.name: path.read_bytes() for path in (root / "data").iterdir()}
        assert found == content_of(version)
    registry.stop()
    first, second = moved(registry)
    changed = CHANGED * FILE_BYTES
    assert sum(first) > FILES * FILE_BYTES
    assert changed < sum(second) < 2 * changed
    assert sum(second) < sum(first) / 5


def moved(registry: LiveRegistry) -> tuple[list[int], list[int]]:
    """Return the bytes of each answer to a pull of the first version, and of the second."""
    versions: tuple[list[int], list[int]] = [], []
    records: list[dict[str, Any]] = [
        json.loads(line) for line in registry.lines if line.startswith("{")
    ]
    pulls = [each for each in records if each.get("user_agent", "").startswith("containers/")]
    version = 0
    for each in pulls:
        version = max(version, int(each["path"].endswith("/manifests/2")))
        versions[version].append(each["bytes_sent"])
    assert {each["status"] for each in pulls} == {200, 206}
    return versions

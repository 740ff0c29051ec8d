"""``docker manifest``: the client alone, without an engine; it tries TLS before plain HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.images import DOCKER, Image, Store
from tests.clients.programs import run
from tests.clients.remote import Remote

pytestmark = pytest.mark.client("docker")


@pytest.fixture
def docker(workspace: Path) -> Callable[..., str]:
    """Return ``docker manifest``, with lists of its own."""

    def manifest(command: str, *arguments: str) -> str:
        config = str(workspace / "client")
        return run("docker", "--config", config, "manifest", command, "--insecure", *arguments)

    return manifest


def pushed(remote: Remote, image: Image, tag: str) -> str:
    """Push an image by plain requests, and return its reference."""
    for digest in image.blobs:
        path = f"{remote.base}/blobs/uploads/?digest={digest}"
        remote.http.post(path, content=image.store.read(digest)).raise_for_status()
    remote.http.put(
        f"{remote.base}/manifests/{tag}",
        content=image.store.read(image.digest),
        headers={"Content-Type": DOCKER.manifest},
    ).raise_for_status()
    return f"{remote.reference}:{tag}"


def test_a_list_is_made_shown_and_pushed(
    docker: Callable[..., str], remote: Remote, store: Store
) -> None:
    images = {
        name: store.image([{"hello": name.encode()}], types=DOCKER, architecture=name)
        for name in ("amd64", "arm64")
    }
    references = [pushed(remote, image, name) for name, image in images.items()]

    shown = json.loads(docker("inspect", references[0]))
    assert shown["config"]["digest"] == images["amd64"].blobs[0]

    docker("create", f"{remote.reference}:list", *references)
    docker("push", f"{remote.reference}:list")
    listed = remote.manifest("list").json()["manifests"]
    assert {entry["platform"]["architecture"]: entry["digest"] for entry in listed} == {
        name: image.digest for name, image in images.items()
    }

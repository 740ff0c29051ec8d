"""A disk flips a bit: the scrub names the image, a pull is refused, and the next push heals it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.clients.archives import write_layout
from tests.clients.containers import Containers
from tests.clients.images import MIB, Image, Store, noise
from tests.integration.damaged import flip
from tests.live import LiveRegistry, start_registry
from tests.loaded import ENTREPOT, program_environment, run_loaded

pytestmark = pytest.mark.client("skopeo")


@pytest.fixture
def registry(workspace: Path) -> Iterator[LiveRegistry]:
    """Return a registry of the test's own, whose files it damages."""
    registry = start_registry(workspace / "data")
    try:
        yield registry
    finally:
        registry.stop()


def scrub(registry: LiveRegistry) -> tuple[int, str]:
    """Run ``entrepot scrub`` beside the registry; return its status, and what it printed."""
    words = ("scrub", "--data", str(registry.data))
    ended = run_loaded(ENTREPOT, words, program_environment())
    return ended.returncode, ended.stdout


def damage(registry: LiveRegistry, store: Store, image: Image) -> str:
    """Flip a bit of the image's layer on the disk; return its digest."""
    _, layer = image.blobs
    content = store.read(layer)
    (file,) = [
        each
        for each in (registry.data / "blobs" / "objects").glob("*/*")
        if each.stat().st_size >= len(content)
    ]
    flip(file)
    return layer


def test_a_flipped_bit_is_found_refused_and_healed_by_the_next_push(
    registry: LiveRegistry, workspace: Path, store: Store
) -> None:
    host = registry.url.removeprefix("http://")
    skopeo = Containers(workspace / "home", host)
    image = store.image([{"hello": noise(3 * MIB, "hello")}])
    write_layout(image, workspace / "pushed")
    here, there = f"oci:{workspace}/pushed:latest", f"docker://{host}/dev/app:1"
    skopeo.run("skopeo", "copy", here, there)
    assert scrub(registry)[0] == 0

    layer = damage(registry, store, image)
    status, told = scrub(registry)
    assert status == 1
    assert f"image dev/app@{image.digest} (1) needs blob {layer}" in told
    pulled = skopeo.attempt("skopeo", "copy", there, f"oci:{workspace}/refused:latest")
    assert pulled.returncode != 0
    assert "404 (Not Found)" in pulled.stderr
    answer = httpx.get(f"{registry.url}/v2/dev/app/blobs/{layer}", timeout=60)
    assert f"the bytes of blob {layer} in dev/app are damaged; push them again" in answer.text

    skopeo.run("skopeo", "copy", here, there)
    skopeo.run("skopeo", "copy", there, f"oci:{workspace}/pulled:latest")
    assert Store(workspace / "pulled").read(layer) == store.read(layer)
    status, told = scrub(registry)
    assert (status, told.splitlines()[-1].rpartition(": ")[2]) == (0, "0 damaged")

"""skopeo follows the redirects of a registry whose plain blobs are in a bucket of S3."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.clients.archives import blobs_in_dir, write_dir
from tests.clients.containers import Containers
from tests.clients.images import Store, noise
from tests.live import start_registry
from tests.s3_servers import settings_for, variables_of

pytestmark = pytest.mark.client("skopeo")


def test_layers_are_pulled_from_the_bucket(store: Store, workspace: Path) -> None:
    plain = {"ENTREPOT_SEALING": "off", "ENTREPOT_STORE_S3_REDIRECTS": "on"}
    env = variables_of(settings_for("seaweedfs")) | plain
    registry = start_registry(workspace / "data", env=env)
    try:
        host = registry.url.removeprefix("http://")
        skopeo = Containers(workspace / "home", host)
        image = store.image([{"a": noise(300_000, "a")}, {"b": noise(200_000, "b")}])
        write_dir(image, workspace / "pushed")
        place = f"docker://{host}/dev/app:1"
        skopeo.run("skopeo", "copy", f"dir:{workspace}/pushed", place)
        skopeo.run("skopeo", "copy", place, f"dir:{workspace}/pulled")
        assert blobs_in_dir(workspace / "pulled") == blobs_in_dir(workspace / "pushed")
    finally:
        registry.stop(signal.SIGTERM)
    lines = [json.loads(line) for line in registry.lines if line.startswith("{")]
    redirected = [each["path"] for each in lines if each.get("status") == 307]
    assert {path.rpartition("/")[2] for path in redirected} == set(image.blobs[1:])
    assert "X-Amz-" not in registry.log

"""The official OCI conformance programs, where someone has built them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conformance.client import Registry

BINARY = os.environ.get("OCI_CONFORMANCE_BINARY")

pytestmark = pytest.mark.skipif(
    not BINARY,
    reason="OCI_CONFORMANCE_BINARY names no program (there is no package of it to install)",
)


def run(environment: dict[str, str], folder: Path) -> None:
    """Run the program in `folder`; its exit status is its verdict."""
    assert BINARY is not None
    done = subprocess.run(
        [BINARY],
        env={**os.environ, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", ["1.1", pytest.param("dev", marks=pytest.mark.newer)])
def test_official_suite(
    registry: Registry, registry_url: str, tmp_path: Path, version: str
) -> None:
    """Every test passes: of the redesigned program by OCI_VERSION, of 1.1.x by OCI_TEST_…."""
    first, second = registry.new_repository(), registry.new_repository()
    redesigned = {
        "OCI_VERSION": version,
        "OCI_REGISTRY": urlsplit(registry_url).netloc,
        "OCI_TLS": "disabled" if registry_url.startswith("http:") else "enabled",
        "OCI_REPO1": first,
        "OCI_REPO2": second,
        "OCI_RESULTS_DIR": str(tmp_path / "results"),
    }
    released = {
        "OCI_ROOT_URL": registry_url,
        "OCI_NAMESPACE": first,
        "OCI_CROSSMOUNT_NAMESPACE": second,
        "OCI_AUTOMATIC_CROSSMOUNT": "1",
        "OCI_TEST_PULL": "1",
        "OCI_TEST_PUSH": "1",
        "OCI_TEST_CONTENT_DISCOVERY": "1",
        "OCI_TEST_CONTENT_MANAGEMENT": "1",
        "OCI_REPORT_DIR": str(tmp_path),
    }
    run({**redesigned, **released}, tmp_path)

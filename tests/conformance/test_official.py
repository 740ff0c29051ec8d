"""The official OCI conformance programs, where someone has built them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conformance.client import Registry
from tests.live_signed_in import serving

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


VERSIONS = pytest.mark.parametrize("version", ["1.1", pytest.param("dev", marks=pytest.mark.newer)])


def environment_of(url: str, first: str, second: str, folder: Path, version: str) -> dict[str, str]:
    """Return what the redesigned program is told (OCI_VERSION), and that of 1.1.x (OCI_TEST_…)."""
    redesigned = {
        "OCI_VERSION": version,
        "OCI_REGISTRY": urlsplit(url).netloc,
        "OCI_TLS": "disabled" if url.startswith("http:") else "enabled",
        "OCI_REPO1": first,
        "OCI_REPO2": second,
        "OCI_RESULTS_DIR": str(folder / "results"),
    }
    released = {
        "OCI_ROOT_URL": url,
        "OCI_NAMESPACE": first,
        "OCI_CROSSMOUNT_NAMESPACE": second,
        "OCI_AUTOMATIC_CROSSMOUNT": "1",
        "OCI_TEST_PULL": "1",
        "OCI_TEST_PUSH": "1",
        "OCI_TEST_CONTENT_DISCOVERY": "1",
        "OCI_TEST_CONTENT_MANAGEMENT": "1",
        "OCI_REPORT_DIR": str(folder),
    }
    return redesigned | released


@VERSIONS
def test_official_suite(
    registry: Registry, registry_url: str, tmp_path: Path, version: str
) -> None:
    """Every test passes."""
    names = registry.new_repository(), registry.new_repository()
    run(environment_of(registry_url, *names, tmp_path, version), tmp_path)


@VERSIONS
@pytest.mark.entrepot
def test_official_suite_with_tokens(tmp_path: Path, version: str) -> None:
    """Every test passes where each request needs a token; the program follows challenges once."""
    with serving(tmp_path / "data") as install:
        names = "acme/conformance", "acme/mounts"
        environment = environment_of(install.registry.url, *names, tmp_path, version)
        login = {"OCI_USERNAME": "token", "OCI_PASSWORD": install.acme.password}
        run(environment | login, tmp_path)

"""The official OCI conformance programs, where someone has built them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conformance.client import Registry
from tests.live_signed_in import SignedIn, serving

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


VERSIONS = ["1.1", pytest.param("dev", marks=pytest.mark.newer)]


def settings(url: str, first: str, second: str, version: str, folder: Path) -> dict[str, str]:
    """Return what tells both programs, the redesigned one and that of 1.1.x, what to test."""
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
    return {**redesigned, **released}


@pytest.mark.parametrize("version", VERSIONS)
def test_official_suite(
    registry: Registry, registry_url: str, tmp_path: Path, version: str
) -> None:
    """Every test passes on the registry under test."""
    first, second = registry.new_repository(), registry.new_repository()
    run(settings(registry_url, first, second, version, tmp_path), tmp_path)


@pytest.fixture(scope="module")
def signed_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SignedIn]:
    """Serve an install of our own, with sign-in."""
    with serving(tmp_path_factory.mktemp("official") / "data") as install:
        yield install


@pytest.mark.entrepot
@pytest.mark.parametrize("version", VERSIONS)
def test_official_suite_with_tokens(signed_in: SignedIn, tmp_path: Path, version: str) -> None:
    """Every test passes where each request needs a bearer, by one answer to one challenge."""
    login = {"OCI_USERNAME": "token", "OCI_PASSWORD": signed_in.acme.password}
    known = settings(
        signed_in.registry.url, f"acme/one-{version}", f"acme/two-{version}", version, tmp_path
    )
    run({**known, **login}, tmp_path)

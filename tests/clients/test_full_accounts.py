"""What clients show when a push is refused because the account may store no more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.archives import write_docker_archive, write_layout
from tests.clients.containers import Containers
from tests.clients.docker_engine import Docker
from tests.clients.images import MIB, Store, noise
from tests.clients.programs import require_root
from tests.entrepot import Home
from tests.live_signed_in import SignedIn

LIMIT = MIB


@pytest.fixture
def full(signed_in: SignedIn, repository: str, tmp_path: Path) -> Iterator[str]:
    """Return a repository of an account that may store one MiB more than it does."""
    data = ("--data", str(signed_in.registry.data), "--account", "partner")
    home = Home(tmp_path)
    assert home.run("quotas", "set", "registry_bytes", str(LIMIT), *data).returncode == 0
    yield repository.replace("acme/", "partner/")
    assert home.run("quotas", "reset", "registry_bytes", *data).returncode == 0


def told(words: str) -> None:
    """Check that a person reads what is reached."""
    assert f"the account may store {LIMIT} bytes of blobs and has" in words
    assert "ask the operator for more" in words


@pytest.mark.client("skopeo")
def test_skopeo_shows_the_quota(
    signed_in: SignedIn, full: str, store: Store, workspace: Path
) -> None:
    machine = Containers(workspace, signed_in.host)
    write_layout(store.image([{"large": noise(3 * MIB, "large")}]), workspace / "pushed")
    login = ("-u", "token", "-p", signed_in.partner.password, signed_in.host)
    machine.run("skopeo", "login", *login)
    target = f"docker://{signed_in.host}/{full}:1"
    ended = machine.attempt("skopeo", "copy", f"oci:{workspace}/pushed:latest", target)
    assert ended.returncode != 0
    told(ended.stderr)
    small = store.image([{"small": b"small"}])
    write_layout(small, workspace / "small")
    machine.run("skopeo", "copy", f"oci:{workspace}/small:latest", target)


@pytest.mark.client("podman")
def test_podman_shows_the_quota(
    signed_in: SignedIn, full: str, store: Store, workspace: Path
) -> None:
    require_root("podman")
    machine = Containers(workspace, signed_in.host)
    image = store.image([{"large": noise(3 * MIB, "podman")}])
    write_docker_archive(image, workspace / "image.tar", "local/a:1")
    machine.run("podman", "load", "--input", workspace / "image.tar")
    login = ("-u", "token", "-p", signed_in.partner.password, signed_in.host)
    machine.run("podman", "login", *login)
    target = f"docker://{signed_in.host}/{full}:1"
    ended = machine.attempt("podman", "push", "local/a:1", target)
    assert ended.returncode != 0
    told(ended.stderr)


@pytest.mark.client("docker")
def test_docker_shows_the_quota(
    docker: Docker, signed_in: SignedIn, full: str, store: Store, workspace: Path
) -> None:
    target = f"{signed_in.host}/{full}:1"
    image = store.image([{"large": noise(3 * MIB, "docker")}])
    write_docker_archive(image, workspace / "image.tar", target)
    docker.run("load", "--input", workspace / "image.tar")
    login = ("login", "--username", "token", "--password", signed_in.partner.password)
    docker.run(*login, signed_in.host)
    ended = docker.attempt("push", target)
    assert ended.returncode != 0
    told(ended.stderr)

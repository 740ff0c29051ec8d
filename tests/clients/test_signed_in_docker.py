"""Docker signed in: log in, push, pull, log out, and no way around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.archives import write_docker_archive
from tests.clients.docker_engine import Docker
from tests.clients.images import Store
from tests.live_signed_in import SignedIn

pytestmark = pytest.mark.client("docker")


def test_docker_from_login_to_logout(
    docker: Docker,
    signed_in: SignedIn,
    store: Store,
    workspace: Path,
    repository: str,
) -> None:
    target = f"{signed_in.host}/{repository}:1"
    write_docker_archive(store.image([{"a": b"a"}]), workspace / "image.tar", target)
    docker.run("load", "--input", workspace / "image.tar")
    login = ("login", "--username", "token", "--password")

    assert docker.attempt("push", target).returncode != 0
    assert docker.attempt(*login, "rlc_wrong", signed_in.host).returncode != 0
    docker.run(*login, signed_in.partner.password, signed_in.host)
    assert "denied" in docker.attempt("push", target).stderr
    docker.run(*login, signed_in.acme.password, signed_in.host)
    docker.run("push", target)
    docker.run("rmi", target)
    docker.run("pull", target)
    # A second repository is mounted from, with a token for both.
    copy = target.replace(repository, f"{repository}-copy")
    docker.run("tag", target, copy)
    assert "Mounted from" in docker.run("push", copy)
    docker.run("logout", signed_in.host)
    docker.run("rmi", target)
    assert docker.attempt("pull", target).returncode != 0

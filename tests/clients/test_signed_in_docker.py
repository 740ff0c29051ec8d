"""Docker signed in: log in, push, pull, log out, and no way around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.archives import write_docker_archive
from tests.clients.docker_engine import Docker
from tests.clients.images import Store
from tests.live_signed_in import SignedIn, access_key_that_logs_in
from tests.tenants import allow

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


def test_docker_shows_what_is_missing(
    docker: Docker, signed_in: SignedIn, store: Store, workspace: Path, repository: str
) -> None:
    """The words of the registry reach the person, whatever the client puts before them."""
    target = f"{signed_in.host}/{repository}:1"
    write_docker_archive(store.image([{"a": b"a"}]), workspace / "image.tar", target)
    docker.run("load", "--input", workspace / "image.tar")

    theirs = f"partner/{repository.partition('/')[2]}"
    there = f"{signed_in.host}/{theirs}:1"
    login = ("login", "--username", "token", "--password", signed_in.partner.password)
    docker.run(*login, signed_in.host)
    docker.run("tag", target, there)
    docker.run("push", there)

    def log_in_as(*actions: str) -> None:
        key = access_key_that_logs_in(signed_in, allow(*actions))
        docker.run("login", "--username", key.id, "--password", key.secret, signed_in.host)

    log_in_as("registry:GetAuthorizationToken")
    none = "denied: none of your policies allows registry:{} on " + repository
    assert none.format("PushImage") in docker.attempt("push", target).stderr
    assert none.format("PullImage") in docker.attempt("pull", target).stderr
    log_in_as("registry:PullImage", "registry:PushImage")
    takes = f"may not create it: that takes registry:CreateRepository on {repository}"
    assert takes in docker.attempt("push", target).stderr
    # Another account's repository reads as one that is not there does.
    told = {
        docker.attempt("pull", f"{signed_in.host}/{name}:1").stderr.replace(name, "it")
        for name in (theirs, "partner/absent", "nobody/absent")
    }
    assert len(told) == 1
    docker.run("logout", signed_in.host)

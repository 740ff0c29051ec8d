"""What every client test starts from: a place to work, content to push, a repository."""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser

from tests.clients.chromium import browser
from tests.clients.console_pages import chromium
from tests.clients.console_visitors import HOME, Site, Visitor, serve_site
from tests.clients.console_world import World, serve_world
from tests.clients.containers import Containers
from tests.clients.docker_engine import docker
from tests.clients.images import Store
from tests.clients.node_provider import library
from tests.clients.remote import Remote
from tests.live import LiveRegistry
from tests.live_signed_in import SignedIn, serving

__all__ = ["browser", "docker", "library"]


@pytest.fixture(scope="session", autouse=True)
def _no_failure_inside(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let no client have met a failure of the server, however well it coped with it."""
    if request.config.getoption("--registry"):
        yield  # its log is not ours to read
        return
    live: LiveRegistry = request.getfixturevalue("live_registry")
    yield
    records = [json.loads(line) for line in live.lines if line.startswith("{")]
    assert not [
        record
        for record in records
        if record["level"] in {"error", "critical"} or record.get("status", 0) >= 500
    ]


@pytest.fixture
def workspace() -> Iterator[Path]:
    """Return a folder that is gone after the test: images are large, socket paths short."""
    with tempfile.TemporaryDirectory(prefix="entrepot-") as folder:
        yield Path(folder)


@pytest.fixture
def store(workspace: Path) -> Store:
    """Return an empty store to make images in."""
    return Store(workspace / "content")


@pytest.fixture(scope="session")
def http(registry_url: str) -> Iterator[httpx.Client]:
    """Return a connection to the registry for looking at it beside the client under test."""
    with httpx.Client(base_url=registry_url, timeout=60) as client:
        yield client


@pytest.fixture
def remote(http: httpx.Client, namespace: str, request: pytest.FixtureRequest) -> Remote:
    """Return a repository no other test uses; whoever pushes first creates it."""
    words = "".join(c if c.isalnum() else " " for c in request.node.name.lower()).split()
    return Remote(http, f"{namespace}/{'-'.join(words)}-{secrets.token_hex(3)}")


@pytest.fixture
def containers(workspace: Path, remote: Remote) -> Containers:
    """Return an empty home and image storage for podman, buildah or skopeo."""
    return Containers(workspace / "containers", remote.host)


@pytest.fixture
def elsewhere(workspace: Path, remote: Remote) -> Containers:
    """Return a second such machine, which has no image yet."""
    return Containers(workspace / "elsewhere", remote.host)


@pytest.fixture(scope="session")
def signed_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SignedIn]:
    """Run one ``entrepot serve`` with two accounts for all tests that sign in."""
    with serving(tmp_path_factory.mktemp("signed-in") / "data") as made:
        yield made
        records = [json.loads(line) for line in made.registry.lines if line.startswith("{")]
        assert not [each for each in records if each["level"] in {"error", "critical"}]


@pytest.fixture
def repository(request: pytest.FixtureRequest) -> str:
    """Return the name of a repository of ``acme`` that no other test uses."""
    words = "".join(c if c.isalnum() else " " for c in request.node.name.lower()).split()
    return f"acme/{'-'.join(words)}-{secrets.token_hex(3)}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Return a registry with its console."""
    with serve_site(tmp_path_factory.mktemp("console") / "data") as served:
        yield served


@pytest.fixture(scope="module")
def admin(site: Site) -> Iterator[Visitor]:
    """Return the browser of somebody who may do all."""
    with site.visitor() as visitor:
        assert visitor.sign_in().headers["location"] == HOME
        yield visitor


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Return a registry with images, whose account has settings, rules and garbage.

    The tests of a file share it, in any order: each must leave the tags, images and policies of
    `shop/frontend` as they were, since pictures are taken of them.
    """
    with serve_world(tmp_path_factory.mktemp("console") / "data") as made:
        made.set_up_account()
        yield made


@pytest.fixture(scope="module")
def windows() -> Iterator[Browser]:
    """Return a running Chromium that opens windows."""
    with chromium() as running:
        yield running

"""``entrepot login`` by a person in headless Chromium, and by a key pair for a real client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from selenium import webdriver

from tests.clients.archives import write_docker_archive
from tests.clients.chromium import check_quiet, fill, title
from tests.clients.docker_engine import Docker
from tests.clients.images import Store
from tests.entrepot import ADMIN, PASSWORD, Home, Install, Waiting, installed
from tests.tools import require_tool


@pytest.fixture(scope="module")
def install(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Install]:
    with installed(tmp_path_factory.mktemp("install") / "data") as made:
        yield made


@pytest.fixture
def home(workspace: Path) -> Home:
    return Home(workspace / "home")


@pytest.mark.client("chromium")
def test_the_first_person_gets_from_init_to_a_list(
    install: Install, home: Home, browser: webdriver.Chrome
) -> None:
    """The page's policy lets the form end in a redirect to the command, and the role is taken."""
    waiting = Waiting(Home(home.folder, {"BROWSER": "true"}), install.url)  # which opens nothing
    browser.get(waiting.page)
    fill(browser, email=ADMIN, password=install.one_time_password)
    assert title(browser) == "Choose a password"
    fill(browser, new_password=PASSWORD, repeated_password=PASSWORD)
    assert title(browser) == "You can close this window"
    assert browser.current_url.startswith("http://127.0.0.1:")
    ended = waiting.wait()
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith("Commands act in the role admin of acme.\n")
    code = httpx.URL(browser.current_url).params["code"]
    assert code not in ended.stdout + ended.stderr
    listed = home.run("repositories", "list")
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.split()[:2] == ["NAME", "IMAGES"]
    check_quiet(browser)


@pytest.mark.client("docker")
def test_docker_pushes_after_entrepot_login(
    install: Install, docker: Docker, store: Store, workspace: Path
) -> None:
    home = Home(workspace / "home", {"DOCKER_CONFIG": str(docker.folder / "client")})
    target = f"{install.url.removeprefix('http://')}/acme/from-docker:1"
    write_docker_archive(store.image([{"a": b"a"}]), workspace / "image.tar", target)
    docker.run("load", "--input", workspace / "image.tar")
    assert docker.attempt("push", target).returncode != 0
    # The client asks its engine to try the password, so it must find the engine of the test.
    engine = Home(
        home.folder, {**home.environment, "DOCKER_HOST": f"unix://{docker.folder}/socket"}
    )
    ended = install.sign_in_by_key(engine, "--docker", "--client", docker.program)
    assert ended.returncode == 0, ended.stderr
    assert "Login Succeeded" in ended.stdout
    docker.run("push", target)
    listed = home.run("repositories", "list", "--output", "json")
    assert '"name": "from-docker"' in listed.stdout
    docker.run("logout", target.partition("/")[0])
    docker.run("rmi", target)


@pytest.mark.client("podman")
def test_podman_is_signed_in_without_tls(install: Install, workspace: Path) -> None:
    podman = require_tool("podman")
    auth = workspace / "auth.json"
    home = Home(workspace / "home", {"REGISTRY_AUTH_FILE": str(auth)})
    ended = install.sign_in_by_key(home, "--docker", "--client", podman)
    assert ended.returncode == 0, ended.stderr
    assert "Login Succeeded!" in ended.stdout
    assert install.url.removeprefix("http://") in auth.read_text()

"""docker, podman and skopeo ask ``docker-credential-entrepot``: no login, no password in a file."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.clients.archives import write_docker_archive, write_layout
from tests.clients.containers import Containers
from tests.clients.docker_engine import Docker
from tests.clients.docs_shell import write_program
from tests.clients.images import Store
from tests.clients.programs import attempt, require_root, run
from tests.live_signed_in import SignedIn
from tests.loaded import program_environment, script_line


@pytest.fixture
def environment(workspace: Path, signed_in: SignedIn) -> dict[str, str]:
    """Return an environment with the helper in PATH, in which ``entrepot login`` signed in."""
    programs = workspace / "bin"
    line = script_line("registry.cli.credential_helper")
    write_program(programs, "docker-credential-entrepot", line)
    token = {"access_token": signed_in.acme.access_token, "expires_at": int(time.time()) + 3000}
    credentials = workspace / "signed-in" / "credentials.json"
    credentials.parent.mkdir()
    credentials.write_text(json.dumps({signed_in.registry.url: {"token": token}}))
    return {
        "PYTHONPATH": program_environment()["PYTHONPATH"],
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "ENTREPOT_CREDENTIALS": str(credentials),
    }


def kept_password(environment: dict[str, str]) -> str:
    """Return the password that the helper has kept."""
    kept = Path(environment["ENTREPOT_CREDENTIALS"]).with_name("container-passwords.json")
    (entry,) = json.loads(kept.read_bytes()).values()
    return str(entry["password"])


@pytest.mark.client("podman")
@pytest.mark.client("skopeo")
def test_podman_and_skopeo_ask_the_helper(
    environment: dict[str, str],
    signed_in: SignedIn,
    store: Store,
    workspace: Path,
    repository: str,
) -> None:
    require_root("podman")
    machine = Containers(workspace / "machine", signed_in.host)
    machine.environment |= environment
    write_layout(store.image([{"a": b"a"}]), workspace / "image")
    target = f"docker://{signed_in.host}/{repository}:1"
    push = ("skopeo", "copy", f"oci:{workspace}/image:latest", target)
    assert machine.attempt(*push).returncode != 0
    auth = machine.home / "auth.json"
    auth.write_text(json.dumps({"credHelpers": {signed_in.host: "entrepot"}}))
    machine.run(*push)
    shown = json.loads(machine.run("skopeo", "inspect", target))
    assert shown["Name"] == f"{signed_in.host}/{repository}"
    machine.run("podman", "pull", "--quiet", target)
    logged_in = machine.run("podman", "login", "--get-login", signed_in.host)
    assert logged_in.strip() == "token"
    machine.run("podman", "logout", signed_in.host)
    assert (
        not Path(environment["ENTREPOT_CREDENTIALS"]).with_name("container-passwords.json").exists()
    )
    machine.run("skopeo", "inspect", target)  # with a new one
    assert kept_password(environment) not in auth.read_text()


@pytest.mark.client("docker")
def test_docker_asks_the_helper(
    environment: dict[str, str],
    docker: Docker,
    signed_in: SignedIn,
    store: Store,
    workspace: Path,
    repository: str,
) -> None:
    target = f"{signed_in.host}/{repository}:1"
    write_docker_archive(store.image([{"a": b"a"}]), workspace / "image.tar", target)
    docker.run("load", "--input", workspace / "image.tar")
    push = (docker.program, *docker.options, "push", target)
    assert attempt(*push, env=environment).returncode != 0
    config = docker.folder / "client" / "config.json"
    config.parent.mkdir(exist_ok=True)
    config.write_text(json.dumps({"credHelpers": {signed_in.host: "entrepot"}}))
    run(*push, env=environment)
    first = kept_password(environment)
    assert first not in config.read_text()
    # A login by hand changes nothing, and a logout only makes the next password a new one.
    login = ("login", "--username", "token", "--password-stdin", signed_in.host)
    password = signed_in.acme.password.encode()
    run(docker.program, *docker.options, *login, env=environment, stdin=password)
    run(docker.program, *docker.options, "logout", signed_in.host, env=environment)
    run(*push, env=environment)
    assert kept_password(environment) != first
    docker.run("rmi", target)
